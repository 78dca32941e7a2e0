"""A received folder of session files: nothing outside it is read, written, removed or awaited.

Each form plants something into a good folder the way a sender could: a link, a pipe, a device, a
socket, a hard link, a record that names a path. For each form, every operation of a user runs.
Files outside the folder stay the same to the byte, no call waits, and the other session of the
folder works.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from perdure.errors import PerdureError, SessionNotFound, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.session.search.values import SearchQuery
from perdure.stores.jsonl.disk.folder import file_name_of
from perdure.stores.jsonl.search.file_table import Known
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.protocol import Verification
from tests.conformance.store.building import erasure
from tests.fakes.clock import START_MS, ManualClock, SeededRandom
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import sampled, with_larger
from tests.fakes.streams import create, say

GOOD, EVIL = StreamId("good"), StreamId("evil")
LIMIT_S = 60.0
NAME = "2026-01-01T00-00-00-000Z_evil.jsonl"
SECRET = "outside-secret-4711"
INDEX = ".perdure/search.db"
JOURNAL = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7"
"""The first bytes of a rollback journal of SQLite."""

Plant = Callable[[Path, Path], None]


async def opened(folder: Path, seed: int = 1) -> JsonlStore:
    return await JsonlStore.open(folder, clock=ManualClock(), random=SeededRandom(seed))


async def planted(tmp_path: Path, plant: Plant) -> tuple[Path, Path]:
    """Return a folder with the session `GOOD`, changed by `plant`, and one outside with `EVIL`."""
    folder, outside = tmp_path / "received", tmp_path / "outside"
    outside.mkdir()
    for place, stream in ((folder, GOOD), (outside, EVIL)):
        store = await opened(place)
        await create(store, stream)
        await say(store, f"hello {SECRET}", stream=stream)
        if stream == GOOD:
            await store.search.reindex()
        await store.close()
    next(outside.glob("*.jsonl")).rename(outside / "evil.jsonl")
    (outside / "precious.txt").write_text(SECRET)
    (outside / "sub").mkdir()
    (outside / "sub" / "precious.txt").write_text(SECRET)
    plant(folder, outside)
    return folder, outside


def content_of(folder: Path) -> dict[str, bytes]:
    """Every file below `folder` with its bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b""
        for path in sorted(folder.rglob("*"))
    }


# ---------------------------------------------------------------- what is planted


def link(name: str, target: str) -> Plant:
    """Create a symbolic link in the folder to a place outside; replace a file of that name."""

    def plant(folder: Path, outside: Path) -> None:
        make_room(folder / name)
        (folder / name).symlink_to(target.replace("OUT", str(outside)))

    return plant


def fifo(name: str) -> Plant:
    def plant(folder: Path, _: Path) -> None:
        make_room(folder / name)
        os.mkfifo(folder / name)

    return plant


def make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink():
        path.rename(path.with_name(f"{path.name}-before"))
    elif path.exists():
        path.unlink()


def unix_socket(folder: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        here = Path.cwd()
        os.chdir(folder)  # a socket's path may only be short
        try:
            made.bind(NAME)
        finally:
            os.chdir(here)


def directory(folder: Path, _: Path) -> None:
    (folder / NAME).mkdir()


def hard_link(folder: Path, outside: Path) -> None:
    os.link(outside / "evil.jsonl", folder / NAME)


def hard_linked_feed(folder: Path, outside: Path) -> None:
    make_room(folder / ".perdure" / "feed")
    os.link(outside / "precious.txt", folder / ".perdure" / "feed")


def erasure_of(path: str) -> Plant:
    """Return a function that plants a record of an erasure that should remove the file `path`."""

    def plant(folder: Path, outside: Path) -> None:
        certificate: dict[str, object] = {
            "id": "e", "backend": "jsonl", "namespace": "default", "scope": "session", "by": "x",
            "at": START_MS, "sessions": [], "removed": {}, "copies": [],
        }  # fmt: skip
        name = path.replace("OUT", str(outside))
        record: dict[str, object] = {
            "certificate": certificate,
            "files": {name: "evil"},
            "keys": [],
            "contents": [],
        }
        (folder / ".perdure" / "erasures" / file_name_of("e")).write_bytes(
            msgspec.json.encode(record)
        )

    return plant


def index_naming(path: str) -> Plant:
    """Return a form that plants a search index whose session is in the file at `path`."""

    def plant(folder: Path, outside: Path) -> None:
        name = path.replace("OUT", str(outside))
        os.mkfifo(outside / "pipe")  # reading it blocks
        with raw_database(folder / INDEX) as db:
            ((known,),) = db.execute("SELECT known FROM session_file").fetchall()
            moved = msgspec.structs.replace(
                msgspec.msgpack.decode(known, type=Known), file=os.fsencode(name)
            )
            db.execute("UPDATE session_file SET known = ?", (msgspec.msgpack.encode(moved),))

    return plant


def index_of_another_program(folder: Path, outside: Path) -> None:
    """A hard link to another program's database, which a write of perdure would damage."""
    with raw_database(outside / "notes.db") as db:
        db.execute("CREATE TABLE notes (text); INSERT INTO notes VALUES ('precious')")
    make_room(folder / INDEX)
    os.link(outside / "notes.db", folder / INDEX)


def journal_naming(folder: Path, outside: Path) -> None:
    """A rollback journal that names a file: SQLite deletes the named file after a rollback."""
    name = str(outside / "precious.txt").encode()
    end = name + struct.pack(">II", len(name), sum(name)) + JOURNAL
    header = JOURNAL + struct.pack(">IIIII", 0, 1, 2, 512, 4096)
    content = header + bytes(512 - len(header)) + struct.pack(">I", 2**18 + 1) + end
    (folder / f"{INDEX}-journal").write_bytes(content)


SIDE = {
    "lease": f".perdure/leases/{file_name_of('good')}",
    "partial": f".perdure/partials/{file_name_of('good')}",
    "key": f".perdure/keys/{file_name_of('good')}",
    "quota": f".perdure/limits/{file_name_of('quota')}",
    "erasure": f".perdure/erasures/{file_name_of('x')}",
    "lock-of-session": f".perdure/locks/stream-{file_name_of('good')}",
    "lock-of-feed": f".perdure/locks/feed-{file_name_of('')}",
    "feed": ".perdure/feed",
    "index": INDEX,
    "log-of-index": f"{INDEX}-wal",
    "memory-of-index": f"{INDEX}-shm",
    "journal-of-index": f"{INDEX}-journal",
}
FOLDERS = ("locks", "leases", "partials", "keys", "blobs", "erasures", "new", "search.db", "limits")

FORMS: dict[str, Plant] = {
    "link-to-a-session-file": link(NAME, "OUT/evil.jsonl"),
    "relative-link": link(NAME, "../outside/evil.jsonl"),
    "link-with-any-name": link("notes.jsonl", "OUT/evil.jsonl"),
    "link-to-nothing": link(NAME, "OUT/new.jsonl"),
    "link-to-text": link(NAME, "OUT/precious.txt"),
    "link-to-itself": link(NAME, NAME),
    "link-to-a-folder": link(NAME, "OUT/sub"),
    "link-to-endless-zeros": link(NAME, "/dev/zero"),
    "link-to-a-terminal": link(NAME, "/dev/tty"),
    "link-to-the-session-beside": link(NAME, "notes.txt"),
    "pipe": fifo(NAME),
    "pipe-with-any-name": fifo("notes.jsonl"),
    "socket": unix_socket,
    "directory": directory,
    "hard-link": hard_link,
    "hard-linked-feed": hard_linked_feed,
    "inner-folder-is-a-link": link(".perdure", "OUT/sub"),
    "shard-of-contents-is-a-link": link(".perdure/blobs/ab", "OUT/sub"),
    "erasure-of-an-absolute-path": erasure_of("OUT/precious.txt"),
    "erasure-of-a-path-above": erasure_of("../outside/precious.txt"),
    "erasure-of-a-path-below": erasure_of("../received/../outside/evil.jsonl"),
    "index-of-an-absolute-path": index_naming("OUT/pipe"),
    "index-of-a-path-above": index_naming("../outside/pipe"),
    "index-of-another-program": index_of_another_program,
    "journal-of-index-names-a-file": journal_naming,
    **{f"{name}-is-a-link": link(path, "OUT/precious.txt") for name, path in SIDE.items()},
    **{f"{name}-is-a-link-to-nothing": link(path, "OUT/new.txt") for name, path in SIDE.items()},
    **{f"{name}-is-a-pipe": fifo(path) for name, path in SIDE.items()},
    **{f"folder-{name}-is-a-link": link(f".perdure/{name}", "OUT/sub") for name in FOLDERS},
}


# ---------------------------------------------------------------- what users do


async def use(folder: Path) -> tuple[list[PerdureError], Verification | None]:
    """Run every operation once; return the refused operations, and the result of verify."""
    refused: list[PerdureError] = []
    verified: Verification | None = None
    try:
        store = await opened(folder, 2)
    except PerdureError as error:
        return [error], None
    request = erasure(EVIL, id="r")
    try:
        for action in (
            store.sessions,
            lambda: store.state(EVIL),
            lambda: store.entries(EVIL),
            lambda: say(store, "more", stream=EVIL),
            lambda: store.acquire_lease(GOOD, "me", 1_000),
            lambda: say(store, "more", stream=GOOD),
            lambda: store.entries(GOOD),
            lambda: store.partial(GOOD),
            store.retention.quota,
            lambda: store.feed(0),
            lambda: store.search.hits(SearchQuery(text="hello")),
            store.search.reindex,
            store.retention.holdings,
            store.maintenance.vacuum,
            store.maintenance.salvage_namespace,
            lambda: store.retention.erase(request),
            store.retention.erasures,
        ):
            try:
                await action()
            except PerdureError as error:
                refused.append(error)
        with suppress(PerdureError):
            verified = await store.maintenance.verify()
    finally:
        await store.close()
    return refused, verified


SESSION_FORMS = tuple(FORMS)[:15]
"""The forms that replace a session file, first in `FORMS`. A test of their own covers them."""


@sampled("form", list(FORMS)[len(SESSION_FORMS) :], kind=lambda form: form.split("-")[0])
async def test_hostile_session_folder_changes_nothing_outside_it(form: str, tmp_path: Path) -> None:
    folder, outside = await planted(tmp_path, FORMS[form])
    before = content_of(outside)
    async with asyncio.timeout(LIMIT_S):
        refused, _ = await use(folder)
    assert content_of(outside) == before
    for error in refused:
        assert SECRET not in str(error)


@pytest.mark.parametrize("form", SESSION_FORMS)
async def test_irregular_session_file_is_reported_and_other_sessions_are_usable(
    form: str, tmp_path: Path
) -> None:
    folder, outside = await planted(tmp_path, FORMS[form])
    before = content_of(outside)
    async with asyncio.timeout(LIMIT_S):
        refused, verified = await use(folder)
    assert content_of(outside) == before
    assert verified is not None
    (problem,) = verified.problems
    assert problem.problem.startswith(
        ("2026-01-01T00-00-00-000Z_evil.jsonl: it", "notes.jsonl: it")
    )
    for error in refused:
        assert SECRET not in str(error)
        named = isinstance(error, StoreUnavailable) and error.store.endswith(NAME)
        assert named or isinstance(error, SessionNotFound)
    store = await opened(folder, 3)
    assert len(await store.entries(GOOD)) == 2
    await store.close()


async def test_session_file_with_a_second_link_is_neither_appended_to_nor_erased(
    tmp_path: Path,
) -> None:
    folder, outside = await planted(tmp_path, hard_link)
    store = await opened(folder)
    assert len(await store.entries(EVIL)) == 1
    request = erasure(EVIL, id="r")
    with pytest.raises(StoreUnavailable, match="hard links"):
        await store.retention.erase(request)
    with pytest.raises(StoreUnavailable, match="hard links"):
        await say(store, "more", stream=EVIL)
    assert await store.retention.erasures() == []
    (outside / "evil.jsonl").unlink()
    await say(store, "more", stream=EVIL)
    assert (await store.retention.erase(request)).is_complete
    await store.close()


async def test_session_file_accepts_appends_despite_a_leftover_link(
    tmp_path: Path,
) -> None:
    folder, _ = await planted(tmp_path, lambda _folder, _outside: None)
    (path,) = folder.glob("*.jsonl")
    draft = folder / ".perdure" / "new" / "1-2-draft"
    os.link(path, draft)
    store = await opened(folder)
    await say(store, "more", stream=GOOD)
    assert not draft.exists()
    assert (await store.maintenance.verify()).problems == ()
    await store.close()


@pytest.mark.parametrize("appends", with_larger(100, 300))
async def test_link_swapped_in_during_an_append_is_not_followed(
    tmp_path: Path, appends: int
) -> None:
    folder, outside = await planted(tmp_path, lambda _folder, _outside: None)
    (path,) = folder.glob("*.jsonl")
    before = content_of(outside)
    done = threading.Event()

    def swap() -> None:
        kept, link = folder / "kept", folder / "link"
        while not done.is_set():
            link.symlink_to(outside / "evil.jsonl")
            os.link(path, kept)
            link.replace(path)
            kept.replace(path)

    swapping = threading.Thread(target=swap)
    swapping.start()
    store = await opened(folder)
    appended = 0
    try:
        for _ in range(appends):
            with suppress(PerdureError):
                await say(store, "more", stream=GOOD)
                appended += 1
    finally:
        done.set()
        swapping.join()
        await store.close()
    assert content_of(outside) == before


@pytest.mark.parametrize("kind", ["retention", "quota", "keys"])
async def test_error_for_an_invalid_limits_file_contains_its_name(
    kind: str, tmp_path: Path
) -> None:
    folder, _ = await planted(tmp_path, lambda _folder, _outside: None)
    place = folder / ".perdure" / "limits" / file_name_of(kind)
    place.parent.mkdir(exist_ok=True)
    place.write_bytes(b"[1, 2")
    store = await opened(folder)
    with pytest.raises(StoreUnavailable, match=place.name):
        await {
            "retention": store.retention.policy,
            "quota": store.retention.quota,
            "keys": store.maintenance.vacuum,
        }[kind]()
    await store.close()


@pytest.mark.parametrize("name", ["blobs", "keys", "locks", "leases"])
async def test_error_contains_the_path_of_a_file_in_place_of_a_folder(
    name: str, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    (folder / ".perdure").mkdir(parents=True)
    (folder / ".perdure" / name).write_text("x")
    with pytest.raises(StoreUnavailable, match=rf"\.perdure/{name} is not available: it is not a"):
        await opened(folder)
