"""Backups: online, verified, encrypted with the store's key; restores that overwrite nothing."""

from __future__ import annotations

import asyncio
import errno
import os
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.restore import restore_backup
from perdure.client.open import open as open_store
from perdure.errors import (
    BackupDamaged,
    EntryNotFound,
    Erased,
    KeyMissing,
    KeyWrong,
    SessionNotFound,
    StoreCorrupt,
    StoreExists,
    StoreInUse,
    StoreReadOnly,
    StoreUnavailable,
    Unsupported,
)
from perdure.session.messages import user
from perdure.stores.maintenance.manifest import check_file, read_manifest
from tests.fakes.clock import START_MS, ManualClock
from tests.fakes.raw_database import raw_database
from tests.fakes.unreadable import unreadable

KEY, OTHER = "ab" * 32, "cd" * 32
CONTENT = ("backup/store.sqlite", "backup/manifest.json")


def address(path: Path) -> str:
    return f"sqlite:///{path}"


async def texts(where: str, key: str | None = None, session: str = "s") -> list[str]:
    async with open_store(where, key=key) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
        path = await (await store.open(session)).path()
    return [entry.message.text for entry in path if entry.message is not None]


async def say(where: str, *said: str, key: str | None = None) -> None:
    async with open_store(where, key=key, durability="normal") as store:
        await store.create(id="s")
        session = await store.open("s")
        for text in said:
            await session.append(user(text))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("key", [None, KEY])
async def test_restored_store_equals_the_original(tmp_path: Path, key: str | None) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(address(store), "one", "two canary", key=key)
    manifest = await back_up(address(store), folder, key=key)

    assert names(folder) == {"store.sqlite", "manifest.json"}
    assert (manifest.streams, manifest.entries) == (1, 2)
    assert manifest.is_encrypted == (key is not None)
    assert (b"canary" in (folder / "store.sqlite").read_bytes()) == (key is None)
    again = tmp_path / "again.db"
    done = await restore_backup(folder, address(again), key=key)
    assert (done.streams, done.entries, done.aside) == (1, 2, None)
    assert await texts(address(again), key) == ["one", "two canary"]
    assert again.stat().st_mode & 0o077 == 0
    assert names(tmp_path) == {"a.db", "backup", "again.db"}


async def test_backup_and_restore_of_encrypted_store_need_the_key(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(address(store), "one", key=KEY)
    with pytest.raises(KeyWrong):
        await back_up(address(store), folder, key=OTHER)
    await back_up(address(store), folder, key=KEY)
    with pytest.raises(KeyWrong):
        await restore_backup(folder, address(tmp_path / "b.db"), key=OTHER)
    with pytest.raises(KeyMissing):
        await restore_backup(folder, address(tmp_path / "b.db"))
    assert names(tmp_path) <= {"a.db", "backup", "backup.partial"}


async def test_writers_continue_during_backup(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(address(store), *(f"{number} " + "x" * 5_000 for number in range(200)))
    said: list[str] = []
    has_begun, is_over = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        async with open_store(address(store), durability="normal") as writing:
            session = await writing.open("s")
            while not is_over.is_set():
                said.append(f"meanwhile {len(said)}")
                await session.append(user(said[-1]))
                has_begun.set()

    writer = asyncio.create_task(write())
    await has_begun.wait()
    manifest = await back_up(address(store), folder)
    is_over.set()
    await writer
    await restore_backup(folder, address(tmp_path / "b.db"))

    found = [t for t in await texts(address(tmp_path / "b.db")) if t.startswith("meanwhile")]
    assert found == said[: len(found)]  # a moment of the log, and nothing in between
    assert manifest.entries == 200 + len(found)
    assert len(await texts(address(store))) == 200 + len(said)


async def test_backup_into_empty_current_folder_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    await back_up("memory:", Path())
    check_file(tmp_path / "empty", read_manifest(tmp_path / "empty"))


async def test_folder_deleted_during_listing_raises_no_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(self: Path) -> list[Path]:
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(self))

    (tmp_path / "backup").mkdir()
    monkeypatch.setattr(Path, "iterdir", gone)
    with pytest.raises(StoreUnavailable):
        await back_up("memory:", tmp_path / "backup")


async def test_restore_without_option_overwrites_nothing(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(address(store), "old")
    await back_up(address(store), folder)
    with pytest.raises(StoreExists):
        await back_up(address(store), folder)
    async with open_store(address(store)) as opened:
        await (await opened.open("s")).append(user("new"))
        with pytest.raises(StoreExists):
            await restore_backup(folder, address(store))
        with pytest.raises(StoreInUse):
            await restore_backup(folder, address(store), is_forced=True)

    done = await restore_backup(folder, address(store), is_forced=True)
    assert done.aside is not None
    assert await texts(address(store)) == ["old"]
    assert await texts(address(Path(done.aside) / "a.db")) == ["old", "new"]


async def test_restore_into_a_folder_without_permission_is_a_store_error() -> None:
    with TemporaryDirectory() as name:  # unlike the folders of pytest, it can be opened to all
        folder = Path(name)
        await say(address(folder / "a.db"), "one")
        await back_up(address(folder / "a.db"), folder / "backup")
        await restore_backup(folder / "backup", address(folder / "b.db"))  # loads all modules
        for each in (folder, folder / "backup", *map(folder.joinpath, CONTENT)):
            each.chmod(0o755)
        (folder / "closed").mkdir()
        there = address(folder / "closed" / "c.db")
        for is_forced in (False, True):
            with unreadable(folder / "closed"), pytest.raises(StoreReadOnly):
                await restore_backup(folder / "backup", there, is_forced=is_forced)


async def test_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(address(store), "one")
    await back_up(address(store), folder)
    whole = (folder / "store.sqlite").read_bytes()
    for damaged in (whole[:-1], whole[:5_000] + b"!" + whole[5_001:], b""):
        (folder / "store.sqlite").write_bytes(damaged)
        with pytest.raises(BackupDamaged):
            await restore_backup(folder, address(tmp_path / "b.db"))
    (folder / "store.sqlite").write_bytes(whole)
    manifest = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text(manifest.replace('"heads": "', '"heads": "0'))
    with pytest.raises(BackupDamaged):
        await restore_backup(folder, address(tmp_path / "b.db"))
    (folder / "manifest.json").unlink()
    with pytest.raises(BackupDamaged):
        await restore_backup(folder, address(tmp_path / "b.db"))
    assert names(tmp_path) == {"a.db", "backup"}


def may_only_read(_path: Path, mode: int) -> bool:
    return mode != os.W_OK


async def test_read_only_store_is_backed_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "a.db"
    await say(address(store), "one")
    monkeypatch.setattr(os, "access", may_only_read)

    await back_up(address(store), tmp_path / "backup")

    monkeypatch.undo()
    await restore_backup(tmp_path / "backup", address(tmp_path / "again.db"))
    assert await texts(address(tmp_path / "again.db")) == ["one"]


async def test_damaged_store_is_not_backed_up(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    await say(address(store), "one")
    with raw_database(store) as db:
        db.execute("UPDATE entry SET body = CAST(replace(body, 'one', 'two') AS BLOB)")
    with pytest.raises(StoreCorrupt, match=rf"^{address(store)} is damaged.*s/0"):
        await back_up(address(store), folder)
    assert names(tmp_path) == {"a.db"}


async def test_restore_ends_at_given_time_or_entry(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    clock = ManualClock()
    for namespace in ("default", "other"):
        async with open_store(
            address(store), namespace=namespace, clock=clock, durability="normal"
        ) as opened:
            session = await opened.create(id="s")
            for number in range(4):
                clock.advance(1.2)
                await session.append(user(f"{namespace} {number}"))
            fork = await session.fork()
            await fork.append(user("in the fork"))
    await back_up(address(store), folder)

    early = datetime.fromtimestamp((START_MS + 2_500) / 1000, UTC)
    done = await restore_backup(folder, address(tmp_path / "early.db"), until=early)
    assert done.streams == 1
    assert await texts(address(tmp_path / "early.db")) == ["default 0", "default 1"]

    await restore_backup(folder, address(tmp_path / "entry.db"), until="s/2", namespace="other")
    async with open_store(address(tmp_path / "entry.db"), namespace="other") as opened:
        assert len(await opened.recent()) == 1
        path = await (await opened.open("s")).path()
        assert [e.message.text for e in path if e.message][-1] == "other 2"
    async with open_store(address(tmp_path / "entry.db")) as opened:
        assert len(await opened.recent()) == 2  # all of it was there by then
    with pytest.raises(EntryNotFound):
        await restore_backup(folder, address(tmp_path / "no.db"), until="s/99")
    assert not (tmp_path / "no.db").exists()


async def test_every_backend_can_be_backed_up_and_restored(tmp_path: Path) -> None:
    source, folder = f"jsonl:///{tmp_path / 'a'}", tmp_path / "backup"
    await say(source, "one", "two")
    manifest = await back_up(source, folder, key=KEY)
    assert (manifest.backend, manifest.is_encrypted) == ("jsonl", True)

    target = f"jsonl:///{tmp_path / 'b'}"
    await restore_backup(folder, target, key=KEY)
    assert await texts(target) == ["one", "two"]
    with pytest.raises(Unsupported):
        await restore_backup(folder, target, key=KEY, is_forced=True)


async def test_restored_store_has_no_leases(tmp_path: Path) -> None:
    store, folder = tmp_path / "a.db", tmp_path / "backup"
    async with open_store(address(store)) as opened:
        session = await opened.create(id="s")
        lease = await opened.backend.acquire_lease(session.id, "me", 600_000)
        await back_up(address(store), folder)
    await restore_backup(folder, address(tmp_path / "b.db"))
    async with open_store(address(tmp_path / "b.db")) as opened:
        taken = await opened.backend.acquire_lease(lease.stream, "you", 600_000)
    assert taken.epoch > lease.epoch


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_erased_data_is_not_in_backup_and_stays_erased(tmp_path: Path, kind: str) -> None:
    source, folder = address(tmp_path / "a.db"), tmp_path / "backup"
    await say(source, "secret")
    async with open_store(source) as store:
        await store.create(id="t")
        await store.erase("s")
    manifest = await back_up(source, folder)
    assert manifest.streams == 2
    assert b"secret" not in (folder / "store.sqlite").read_bytes()

    where = f"{kind}:///{tmp_path / 'b'}"
    await restore_backup(folder, where)

    async with open_store(where) as store:
        assert (await store.backend.maintenance.verify()).problems == ()
        assert [info.id for info in await store.recent()] == ["t"]
        with pytest.raises((Erased, SessionNotFound)):
            await (await store.open("s")).append(user("on"))


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_erasure_certificate_lists_the_backups(tmp_path: Path, kind: str) -> None:
    source = f"{kind}:///{tmp_path / 'a'}"
    await say(source, "secret")
    first, second = tmp_path / "first", tmp_path / "second"
    manifests = [await back_up(source, folder) for folder in (first, second)]

    async with open_store(source) as store:
        certificate = await store.erase("s")
        kept = await store.erasures()

    named = [copy for copy in certificate.copies if copy.what.startswith("the backup ")]
    assert [(copy.what, copy.at) for copy in named] == [
        (f"the backup {folder}", manifest.created_at)
        for folder, manifest in zip((first, second), manifests, strict=True)
    ]
    assert set(named) <= set(kept[0].copies)
