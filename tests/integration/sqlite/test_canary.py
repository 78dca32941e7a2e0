"""A word in all content of an encrypted store never reaches the disk unencrypted.

A layer below the encryption sees every write to every file: database, log, shared memory, journal,
temporary file, copy. The tests scan the writes, and the files that remain in the folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from perdure.session.codec import new_tree
from perdure.session.messages import user
from perdure.session.search.values import SearchQuery
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.maintenance.migration_rehearsal import rehearse_migration
from perdure.stores.sqlite.maintenance.rekey import rekey
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.faulty_vfs import faulty_vfs
from tests.fakes.planted import FIRST, content_of, plant

WORD = "canary7f3a9c"
KEY, OTHER = StoreKey(b"\x0a" * 32), StoreKey(b"\x0b" * 32)
WRITER = Path(__file__).parent / "children" / "plant.py"
SPILL_BYTES = 8_000_000
"""More than the cache of the writer holds: the transaction reaches the disk before its commit."""


@dataclass
class Seen:
    """The names of all written files, and of the files to which the word was written."""

    files: set[str] = field(default_factory=set[str])
    leaks: list[str] = field(default_factory=list[str])

    def look(self, name: str, data: bytes) -> None:
        self.files.add(Path(name).name)
        if any(form in data for form in FORMS):
            self.leaks.append(name)


FORMS = (
    WORD.encode(),
    WORD.encode("utf-16-le"),
    WORD.encode().hex().encode(),
    KEY.reveal().encode(),
)
"""What is searched for: the word in every form in which it could be written, and the key."""


@contextmanager
def watched() -> Generator[Seen]:
    """Yield a record of every write of SQLite, made below the encryption."""
    seen = Seen()
    with faulty_vfs() as layer:
        layer.witness = seen.look
        yield seen


def leaks_in(folder: Path) -> list[str]:
    """Return the files of `folder` that contain the word."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [str(file) for file in files if any(form in file.read_bytes() for form in FORMS)]


async def opened(path: Path, key: StoreKey | None = KEY) -> SqliteStore:
    return await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1), key=key)


async def a_large_commit(store: SqliteStore) -> None:
    texts = (WORD + os.urandom(500_000).hex() for _ in range(SPILL_BYTES // 1_000_000))
    entries = tuple(new_tree(user(text)) for text in texts)
    write = Write(stream=FIRST, entries=entries)
    blobs = (WORD.encode() + os.urandom(2_000_000),)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=blobs))


def quietly(_done: int, _total: int) -> None:
    """Ignore the progress."""


async def test_planted_text_is_found_in_the_files_of_a_plain_store(path: Path) -> None:
    with watched() as seen:
        store = await opened(path, None)
        await plant(store, WORD)
        assert leaks_in(path.parent)
        await store.close()
    assert seen.leaks


@pytest.mark.all_only
async def test_planted_text_is_never_in_the_files_of_an_encrypted_store(path: Path) -> None:
    with watched() as seen:
        store = await opened(path)
        await plant(store, WORD)
        before = await content_of(store, WORD)
        assert leaks_in(path.parent) == []
        await a_large_commit(store)
        assert leaks_in(path.parent) == []
        assert (await store.maintenance.verify()).problems == ()
        assert len(await store.search.hits(SearchQuery(text=WORD))) > 5
        assert await store.search.reindex() > 5
        assert (await store.maintenance.vacuum()).blobs == 1
        assert leaks_in(path.parent) == []
        await store.close()
        rehearse_migration(path, KEY)
        rekey(path, KEY, OTHER, quietly)
        assert leaks_in(path.parent) == []
        store = await opened(path, OTHER)
        assert len(await content_of(store, WORD)) > len(before)
        await store.close()

    assert seen.leaks == []
    assert seen.files >= {path.name, path.name + "-wal"}
    endings = ("", "-wal", "-shm", "-journal", "-rekey", "-rekey-journal")
    made = f"{path.name}-new-{os.getpid()}"  # under this name the store was made
    names = {path.name + end for end in endings} | {made, f"{made}-journal", f"{made}-wal"}
    assert seen.files <= {*names, f"{made}-shm"}
    assert leaks_in(path.parent) == []


async def test_encryption_of_a_plain_store_leaves_no_planted_text_in_its_files(path: Path) -> None:
    store = await opened(path, None)
    await plant(store, WORD)
    await store.close()
    assert leaks_in(path.parent)

    with watched() as seen:
        rekey(path, None, KEY, quietly)

    assert leaks_in(path.parent) == []
    assert [name for name in seen.leaks if name.endswith("-rekey")] == []


@pytest.mark.parametrize("moment", ["committed", "writing"])
def test_killed_process_leaves_no_planted_text_in_an_encrypted_store(
    path: Path, moment: str
) -> None:
    command = [sys.executable, str(WRITER), str(path), moment, WORD]
    subprocess.run(command, input=KEY.reveal(), text=True, check=False, timeout=60)

    left = sorted(file.name for file in path.parent.iterdir())
    assert path.name + "-wal" in left
    assert path.with_name(path.name + "-wal").stat().st_size > 100_000
    assert leaks_in(path.parent) == []


async def test_commits_of_killed_process_survive(path: Path) -> None:
    killed(path)

    store = await opened(path)
    assert b'"first_text":"user ' + WORD.encode() in await content_of(store, WORD)
    assert (await store.maintenance.verify()).problems == ()
    await store.close()
    assert leaks_in(path.parent) == []


def killed(path: Path) -> None:
    command = [sys.executable, str(WRITER), str(path), "committed", WORD]
    subprocess.run(command, input=KEY.reveal(), text=True, check=False, timeout=60)
