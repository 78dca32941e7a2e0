"""Files at a store's path: only files of perdure are changed."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from perdure.errors import ConfigError, NotAStore, StoreCorrupt, StoreTooNew, StoreUnavailable
from perdure.stores.sqlite import database
from perdure.stores.sqlite.address import open_sqlite
from perdure.stores.sqlite.connections import Site
from perdure.stores.sqlite.database import READERS
from perdure.stores.sqlite.migrate import APPLICATION_ID, latest_version
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener


def snapshot(folder: Path) -> dict[str, bytes]:
    """Return every file of `folder` with its bytes, except SQLite's shared memory."""
    return {
        file.name: file.read_bytes()
        for file in sorted(folder.iterdir())
        if not file.name.endswith("-shm")
    }


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def names_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def with_header_of(path: Path, *, offset: int, value: int) -> None:
    """Write four bytes into the file's header."""
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(value.to_bytes(4, "big"))


async def made(open_store: Opener) -> None:
    store = await open_store()
    await create(store)
    await say(store, "hello")
    await store.close()


async def test_missing_file_is_created_in_private_folders(
    open_store: Opener, tmp_path: Path
) -> None:
    path = tmp_path / "data" / "perdure" / "sessions.db"
    store = await open_store(path)
    await create(store)

    for name in ("sessions.db", "sessions.db-wal", "sessions.db-shm"):
        assert mode_of(path.parent / name) == 0o600
    assert mode_of(path.parent) == mode_of(path.parent.parent) == 0o700


async def test_creating_a_store_removes_temporary_files_of_killed_processes(
    open_store: Opener, path: Path
) -> None:
    kept = [f"{path.name}-new-backup", f"{path.name}-new-7-copy", f"other-{path.name}-new-7"]
    for name in (*kept, f"{path.name}-new-7", f"{path.name}-new-8-wal"):
        path.with_name(name).touch()
    await (await open_store()).close()
    assert names_in(path.parent) == sorted([path.name, *kept])


async def test_new_database_file_has_its_final_settings(open_store: Opener, path: Path) -> None:
    await made(open_store)

    with raw_database(path) as db:
        assert db.pragma("application_id") == APPLICATION_ID
        assert db.pragma("user_version") == latest_version()
        assert db.pragma("journal_mode") == "wal"
        assert db.pragma("auto_vacuum") == 2  # incremental
        assert db.pragma("page_size") == 4096


async def test_closing_the_store_leaves_only_the_database_file(
    open_store: Opener, path: Path
) -> None:
    await made(open_store)

    assert names_in(path.parent) == [path.name]


async def test_empty_database_becomes_a_store(open_store: Opener, path: Path) -> None:
    with raw_database(path) as db:
        db.pragma("user_version", 7)
        db.pragma("user_version", 0)

    await made(open_store)


async def test_missing_store_is_not_created_if_it_must_exist(
    open_store: Opener, path: Path
) -> None:
    with pytest.raises(NotAStore, match="no such file"):
        await open_store(is_created=False)
    assert names_in(path.parent) == []


async def test_opening_a_folder_as_a_database_is_rejected(
    open_store: Opener, tmp_path: Path
) -> None:
    with pytest.raises(NotAStore, match="folder"):
        await open_store(tmp_path)


async def test_path_that_is_no_regular_file_is_rejected_and_stays_unlocked(
    open_store: Opener, path: Path
) -> None:
    os.mkfifo(path)  # as empty as a new file, like a device
    mode = mode_of(path)
    assert mode != 0o600
    with pytest.raises(NotAStore, match="device"):
        await open_store()
    assert mode_of(path) == mode


@pytest.mark.parametrize("content", [b"dear diary\n", b"x" * 5000])
async def test_non_database_file_is_unchanged(
    open_store: Opener, path: Path, content: bytes
) -> None:
    write(path, content)

    with pytest.raises(NotAStore):
        await open_store()
    assert snapshot(path.parent) == {path.name: content}


@pytest.mark.parametrize("mode", ["delete", "wal"])
@pytest.mark.parametrize("application", [0, 1234])
async def test_database_of_another_program_is_unchanged(
    open_store: Opener, path: Path, mode: str, application: int
) -> None:
    with raw_database(path) as db:
        db.pragma("journal_mode", mode)
        db.pragma("application_id", application)
        db.execute("CREATE TABLE contact (name TEXT)")
    before = snapshot(path.parent)

    with pytest.raises(NotAStore, match="another program"):
        await open_store()
    assert snapshot(path.parent) == before


async def test_database_in_use_by_another_program_is_unchanged(
    open_store: Opener, path: Path
) -> None:
    with raw_database(path) as db:
        db.pragma("journal_mode", "wal")
        db.execute("CREATE TABLE contact (name TEXT)")
        before = snapshot(path.parent)

        with pytest.raises(NotAStore):
            await open_store()
        assert snapshot(path.parent) == before


async def test_newer_schema_is_rejected_and_unchanged(open_store: Opener, path: Path) -> None:
    await made(open_store)
    with_header_of(path, offset=60, value=latest_version() + 1)
    before = snapshot(path.parent)

    with pytest.raises(StoreTooNew) as raised:
        await open_store()
    newest = latest_version()
    assert (raised.value.version, raised.value.supported) == (newest + 1, newest)
    assert snapshot(path.parent) == before


def write_newer_version_to_log(path: Path) -> None:
    """Write a newer schema version that stays in the write-ahead log of the store at `path`."""
    with raw_database(path) as newer:
        newer.wal_autocheckpoint(0)
        newer.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        newer.pragma("user_version", latest_version() + 1)


async def test_newer_schema_only_in_the_write_ahead_log_is_rejected_and_unchanged(
    open_store: Opener, path: Path
) -> None:
    await made(open_store)
    write_newer_version_to_log(path)
    before = snapshot(path.parent)
    assert len(before) == 2

    with pytest.raises(StoreTooNew):
        await open_store()
    assert snapshot(path.parent) == before


async def test_newer_schema_that_appears_while_the_store_opens_is_rejected_and_unchanged(
    open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(open_store)
    write_newer_version_to_log(path)
    log = path.with_name(f"{path.name}-wal").rename(path.with_name("log"))
    path.with_name(f"{path.name}-shm").unlink()
    before = snapshot(path.parent)
    check = database.open_site

    def checked(*args: Any, **options: Any) -> Site:
        site = check(*args, **options)
        log.rename(f"{path}-wal")
        return site

    monkeypatch.setattr(database, "open_site", checked)
    with pytest.raises(StoreTooNew):
        await open_store()
    assert snapshot(path.parent)[path.name] == before[path.name]


async def test_store_can_be_used_if_a_rekey_is_killed_while_the_store_opens(
    open_store: Opener, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made(open_store)
    check = database.open_site

    def checked(*args: Any, **options: Any) -> Site:
        site = check(*args, **options)
        with raw_database(path) as rekeying:
            rekeying.pragma("journal_mode", "DELETE")
        return site

    monkeypatch.setattr(database, "open_site", checked)
    store = await open_store()
    await say(store, "again")
    with raw_database(path) as db:
        assert db.pragma("journal_mode") == "wal"


async def test_open_store_rejects_writes_after_newer_perdure_migrated_it(
    open_store: Opener, path: Path
) -> None:
    store = await open_store()
    await create(store)
    before = await store.state(S)
    with raw_database(path) as newer:
        newer.pragma("user_version", latest_version() + 1)

    with pytest.raises(StoreTooNew):
        await say(store, "too old")
    assert await store.state(S) == before


async def test_damaged_store_header_is_distinguished_from_another_kind_of_file(
    open_store: Opener, path: Path
) -> None:
    await made(open_store)
    with_header_of(path, offset=0, value=0)
    before = snapshot(path.parent)

    with pytest.raises(StoreCorrupt, match="header"):
        await open_store()
    assert snapshot(path.parent) == before


@pytest.mark.parametrize(("offset", "value"), [(16, 0x03010203), (44, 99), (100, 0)])
async def test_damaged_first_page_is_reported_and_unchanged(
    open_store: Opener, path: Path, offset: int, value: int
) -> None:
    await made(open_store)
    with_header_of(path, offset=offset, value=value)
    before = snapshot(path.parent)

    with pytest.raises(StoreCorrupt):
        await open_store()
    assert snapshot(path.parent) == before


async def test_truncated_file_is_reported_and_unchanged(open_store: Opener, path: Path) -> None:
    await made(open_store)
    with path.open("r+b") as file:
        file.truncate(3 * 4096)
    before = snapshot(path.parent)

    with pytest.raises(StoreCorrupt):
        await open_store()
    assert snapshot(path.parent) == before


async def test_store_whose_process_died_while_enabling_wal_opens_through_a_symlink(
    open_store: Opener, path: Path
) -> None:
    await made(open_store)
    killed, link = path.with_name("killed.db"), path.with_name("folder") / "link.db"
    link.parent.mkdir()
    link.symlink_to(killed)
    with raw_database(path) as db:
        db.pragma("journal_mode", "DELETE")
        db.execute("PRAGMA synchronous = OFF; BEGIN IMMEDIATE")
        db.execute(f"PRAGMA user_version = {latest_version()}")
        for end in ("", "-journal"):
            shutil.copyfile(f"{path}{end}", f"{killed}{end}")
    with killed.open("r+b") as file:
        file.seek(18)
        file.write(bytes((2, 2)))

    store = await open_store(link)
    await say(store, "again")
    await store.close()

    with raw_database(killed) as db:
        assert db.pragma("journal_mode") == "wal"


async def test_concurrent_openings_of_a_new_file_create_one_store(path: Path) -> None:
    async def opened(number: int) -> SqliteStore:
        return await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(number))

    stores = await asyncio.gather(*map(opened, range(8)))
    await create(stores[0])
    assert [(await store.state(S)).head for store in stores] == [-1] * 8
    for store in stores:
        await store.close()


async def test_second_handle_of_a_file_works_after_the_first_is_closed(
    open_store: Opener, path: Path
) -> None:
    first, second = await open_store(), await open_store(path.parent / "." / path.name)
    await create(first)
    await first.close()

    await say(second, "still here")
    with pytest.raises(StoreUnavailable):
        await say(first, "gone")


async def test_address_contains_path_of_file(path: Path) -> None:
    store = await open_sqlite(
        f"sqlite:///{path}",
        namespace="default",
        durability="full",
        clock=ManualClock(),
        random=SeededRandom(1),
    )
    assert store.address == f"sqlite:///{path}"
    assert (await store.info()).durability == "full"
    await store.close()


@pytest.mark.parametrize(
    ("address", "durability"), [("sqlite:///", "full"), ("x.db", "full"), ("sqlite:///x.db", "no")]
)
async def test_address_without_a_file_is_rejected(address: str, durability: str) -> None:
    with pytest.raises(ConfigError):
        await open_sqlite(
            address,
            namespace="default",
            durability=durability,
            clock=ManualClock(),
            random=SeededRandom(1),
        )


async def test_unfinished_read_does_not_hold_an_old_snapshot(store: SqliteStore) -> None:
    database = store.handle.opened
    left: list[object] = []

    def half(tables: Tables) -> None:
        rows = tables.rows("SELECT name FROM kind")
        next(rows)
        left.append(rows)

    for _ in range(READERS):
        await database.read(half)
    await create(store)
    for _ in range(2 * READERS):
        assert (await store.state(S)).head == -1
        assert len(await store.sessions(limit=1)) == 1
    await say(store, "one")
    for _ in range(2 * READERS):
        assert (await store.state(S)).head == 0


async def test_sequential_reads_share_a_thread(store: SqliteStore) -> None:
    def thread_name(_: Tables) -> str:
        return threading.current_thread().name

    database = store.handle.opened
    assert len({await database.read(thread_name) for _ in range(50)}) == 1
    together = [database.read(lambda _: (barrier.wait(60), thread_name(_))) for _ in range(READERS)]
    barrier = threading.Barrier(READERS)
    assert len(set(await asyncio.gather(*together))) == READERS


async def test_pending_reads_end_when_the_store_closes(
    open_store: Opener,
) -> None:
    store = await open_store()
    reads = [asyncio.ensure_future(store.position()) for _ in range(16 * READERS)]
    await asyncio.sleep(0)
    reads[-1].cancel()
    await store.close()
    outcomes = await asyncio.wait_for(asyncio.gather(*reads, return_exceptions=True), 60)
    assert isinstance(outcomes.pop(), asyncio.CancelledError)
    assert all(isinstance(outcome, int | StoreUnavailable) for outcome in outcomes)
