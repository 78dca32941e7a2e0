"""A store whose files are removed, replaced or cut raises an error at the call.

A write to a file that was removed or replaced is never acknowledged.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from perdure import user
from perdure.client.open import open as open_store
from perdure.errors import StoreCorrupt, StoreError, StoreUnavailable
from perdure.stores.sqlite.database import READERS
from tests.fakes.samples import case

FILE = "s.db"


def remove(file: Path) -> None:
    file.unlink()


def move_away(file: Path) -> None:
    file.rename(file.with_name("moved"))


def replace_by_copy(file: Path) -> None:
    copy = file.with_name("copy")
    shutil.copy(file, copy)
    copy.replace(file)


def replace_by_empty(file: Path) -> None:
    file.unlink()
    file.touch()


def remove_folder(file: Path) -> None:
    shutil.rmtree(file.parent)


CHANGES: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "file removed": ("", remove, "its file was removed"),
    "file moved": ("", move_away, "its file was removed"),
    "file replaced by a copy": ("", replace_by_copy, "its file was replaced"),
    "file replaced by an empty one": ("", replace_by_empty, "its file was replaced"),
    "folder removed": ("", remove_folder, "its file was removed"),
    "log removed": ("-wal", remove, "-wal, which belongs to it, was removed"),
    "log replaced": ("-wal", replace_by_copy, "-wal, which belongs to it, was replaced"),
    "log emptied by another": ("-wal", replace_by_empty, "-wal, which belongs to it, was replaced"),
    "shared memory removed": ("-shm", remove, "-shm, which belongs to it, was removed"),
}


@pytest.mark.parametrize("durability", ["full", "normal"])
@pytest.mark.parametrize("change", CHANGES)
async def test_commit_to_a_sqlite_store_without_its_file_is_not_acknowledged(
    tmp_path: Path, change: str, durability: str
) -> None:
    end, act, told = CHANGES[change]
    file = tmp_path / "folder" / FILE
    level = "full" if durability == "full" else "normal"
    async with open_store(f"sqlite:///{file}", durability=level) as store:
        session = await store.create()
        await session.append(user("kept"))
        act(file.with_name(FILE + end))
        for call in (session.append(user("lost")), store.create(), session.messages()):
            with pytest.raises(StoreUnavailable) as refused:
                await call
            assert told in str(refused.value)


@pytest.mark.parametrize("change", ["file removed", "file replaced by a copy", "folder removed"])
async def test_reader_that_starts_after_the_file_vanished_raises_an_error(
    tmp_path: Path, change: str
) -> None:
    end, act, told = CHANGES[change]
    file = tmp_path / "folder" / FILE
    async with open_store(f"sqlite:///{file}") as store:
        session = await store.create()
        act(file.with_name(FILE + end))
        reads = (session.messages() for _ in range(READERS + 1))  # each on a thread of its own
        for error in await asyncio.gather(*reads, return_exceptions=True):
            assert isinstance(error, StoreUnavailable)
            assert told in str(error)


async def test_restored_sqlite_file_is_usable_again(tmp_path: Path) -> None:
    file = tmp_path / FILE
    async with open_store(f"sqlite:///{file}") as store:
        session = await store.create()
        file.rename(tmp_path / "moved")
        with pytest.raises(StoreUnavailable):
            await session.append(user("lost"))
        (tmp_path / "moved").rename(file)
        await session.append(user("kept"))
        assert [message.text for message in await session.messages()] == ["kept"]
        assert (await store.verify()).problems == ()


@pytest.mark.parametrize("key", [None, "ab" * 32])
async def test_truncated_sqlite_file_is_reported_and_unchanged(
    tmp_path: Path, key: str | None
) -> None:
    whole = tmp_path / FILE
    async with open_store(f"sqlite:///{whole}", key=key) as store:
        session = await store.create()
        await session.append(user("kept"))
        log = whole.with_name(FILE + "-wal").read_bytes()
    for size, has_log in product([0, 1, 15, 16, 50, 99], [False, True]):
        with case((size, has_log)):
            file = tmp_path / f"{size} {has_log}" / FILE
            file.parent.mkdir()
            file.write_bytes(whole.read_bytes()[:size])
            if has_log:
                file.with_name(FILE + "-wal").write_bytes(log)
            before = contents(file.parent)
            is_recognized = size == 0 or has_log or key is None
            with pytest.raises(StoreCorrupt if is_recognized else StoreError):
                async with open_store(f"sqlite:///{file}", key=key):
                    pass
            assert contents(file.parent) == before


async def test_sqlite_file_truncated_while_open_is_reported(tmp_path: Path) -> None:
    file = tmp_path / FILE
    async with open_store(f"sqlite:///{file}") as store:
        session = await store.create()
        with file.open("r+b") as opened:
            opened.truncate(0)
        with pytest.raises(StoreCorrupt):
            await session.append(user("lost"))


async def test_write_ahead_log_without_its_database_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / FILE
    log = file.with_name(FILE + "-wal")
    async with open_store(f"sqlite:///{file}") as store:
        await store.create()
        content = log.read_bytes()
    file.unlink()
    log.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="write-ahead log"):
        async with open_store(f"sqlite:///{file}"):
            pass
    assert log.read_bytes() == content
    assert not file.exists()


def remove_tree(folder: Path) -> None:
    shutil.rmtree(folder)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files in a folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def replace_folder(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


FOLDER_CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "folder removed": (remove_tree, "its folder was removed"),
    "folder moved": (move_away, "its folder was removed"),
    "folder replaced by a copy": (replace_folder, "its folder was replaced"),
}


@pytest.mark.parametrize("change", FOLDER_CHANGES)
async def test_commit_to_session_files_without_their_folder_is_not_acknowledged(
    tmp_path: Path, change: str
) -> None:
    act, told = FOLDER_CHANGES[change]
    folder = tmp_path / "sessions"
    async with open_store(f"jsonl:///{folder}") as store:
        session = await store.create()
        await session.append(user("kept"))
        act(folder)
        for call in (session.append(user("lost")), store.create(), session.messages()):
            with pytest.raises(StoreUnavailable, match=told):
                await call


async def test_append_to_a_removed_session_file_is_not_acknowledged(tmp_path: Path) -> None:
    async with open_store(f"jsonl:///{tmp_path / 's'}") as store:
        session = await store.create()
        await session.append(user("kept"))
        (session_file,) = (name for name in contents(tmp_path / "s") if name.endswith(".jsonl"))
        (tmp_path / "s" / session_file).unlink()
        with pytest.raises(StoreError):
            await session.append(user("lost"))


SAME_PROCESS = """
import asyncio, sqlite3, sys
import perdure

async def append(session, name):
    for number in range(100):
        await session.append(perdure.user(f"{name} {number}"))
        await session.messages()

async def main(file):
    async with perdure.open(f"sqlite:///{file}") as store:
        session = await store.create()
        work = [asyncio.ensure_future(append(session, name)) for name in range(3)]
        for _ in range(100):
            other = sqlite3.connect(file)
            other.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            other.close()
            await asyncio.sleep(0)
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            print(type(outcome).__name__, outcome)

asyncio.run(main(sys.argv[1]))
"""


def test_error_mentions_a_second_sqlite_library_in_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAME_PROCESS, str(tmp_path / FILE)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = ended.stdout.splitlines()
    assert len(lines) == 3
    for line in lines:
        assert line.startswith("StoreUnavailable"), line
        assert "another SQLite library in the same process, such as Python's sqlite3" in line
    assert ended.stderr == ""
