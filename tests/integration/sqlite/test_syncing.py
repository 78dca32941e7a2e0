"""The log of the file is synced before a commit is acknowledged. The sync holds no file lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from perdure.errors import StoreUnavailable
from perdure.session.codec import new_tree
from perdure.session.messages import user
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.files import creation
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.faulty_vfs import FaultyVfs, Operation, failing_from, faulty_vfs, nothing
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener


@pytest.fixture
def layer() -> Iterator[FaultyVfs]:
    with faulty_vfs() as layer:
        yield layer


@pytest.fixture
def synced(layer: FaultyVfs) -> list[str]:
    """Return a list that collects the name endings of the files that are synced."""
    names: list[str] = []

    def plan(operation: Operation, name: str, _offset: int) -> None:
        if operation == "sync":
            names.append(name.rpartition("db")[2])

    layer.plan = plan
    return names


@pytest.mark.parametrize("key", [None, StoreKey(bytes(range(32)))], ids=["plain", "encrypted"])
def test_new_store_is_synced_completely_before_it_is_renamed(
    monkeypatch: pytest.MonkeyPatch, path: Path, key: StoreKey | None
) -> None:
    synced: list[tuple[list[str], bytes]] = []

    def recorded(place: Path) -> None:
        names = sorted(file.name for file in path.parent.glob(f"{path.name}*"))
        synced.append((names, place.read_bytes() if place.is_file() else b""))

    monkeypatch.setattr(creation, "sync_file", recorded)
    monkeypatch.setattr(creation, "sync_folder", recorded)
    creation.create_store(path, lambda: b"seed", key)

    draft = f"{path.name}-new-{os.getpid()}"
    content = path.read_bytes()
    assert len(content) > 4096
    assert synced == [([draft], content), ([path.name, draft], b"")]


def committed_elsewhere(path: Path) -> None:
    """Commit through another connection, which does not sync the commit."""
    with raw_database(path) as other:
        other.execute("PRAGMA synchronous = NORMAL")
        other.execute("UPDATE namespace SET name = name")


async def test_file_is_unlocked_during_sync_of_a_commit(
    layer: FaultyVfs, open_store: Opener, path: Path
) -> None:
    store = await open_store(durability="full")
    await create(store)
    locked: list[bool] = []

    def plan(operation: Operation, _name: str, _offset: int) -> None:
        if operation != "sync":
            return
        with raw_database(path) as other:
            try:
                other.execute("BEGIN IMMEDIATE")
                locked.append(False)
                other.execute("ROLLBACK")
            except apsw.BusyError:
                locked.append(True)

    layer.plan = plan
    await say(store, "x")
    layer.plan = nothing

    assert locked == [False]


async def test_commit_of_another_process_is_synced_before_read_returns(
    open_store: Opener, path: Path, synced: list[str]
) -> None:
    store = await open_store(durability="full")
    await create(store)
    await store.state(S)
    committed_elsewhere(path)
    synced.clear()

    await store.state(S)
    assert synced == ["-wal"]
    for _ in range(3):
        await store.state(S)
    assert len(synced) <= 4  # each thread that reads looks once


async def test_read_of_empty_log_does_not_wait_for_the_disk(
    open_store: Opener, path: Path, synced: list[str]
) -> None:
    store = await open_store(durability="full")
    await create(store)
    await store.close()
    assert not path.with_name(f"{path.name}-wal").exists()
    synced.clear()

    store = await open_store(durability="full")
    await store.state(S)
    assert synced == []
    committed_elsewhere(path)
    synced.clear()
    await store.state(S)
    assert synced == ["-wal"]


async def test_durability_normal_never_waits_for_disk(
    open_store: Opener, path: Path, synced: list[str]
) -> None:
    store = await open_store(durability="normal")
    await create(store)
    committed_elsewhere(path)
    synced.clear()

    await say(store, "x")
    await store.state(S)

    assert synced == []


async def test_repeated_commit_with_an_idempotency_key_is_synced(
    open_store: Opener, synced: list[str]
) -> None:
    careless, store = await open_store(durability="normal"), await open_store(durability="full")
    await create(store)
    write = Write(stream=S, entries=(new_tree(user("once")),))
    commit = Commit(writes=(write,), at=1, idempotency_key="key")
    await careless.commit(commit)
    synced.clear()

    assert (await store.commit(commit)).is_replay
    assert synced == ["-wal"]


async def test_commit_after_a_failed_sync_restarts_the_write_ahead_log(
    layer: FaultyVfs, open_store: Opener, path: Path
) -> None:
    store = await open_store(durability="full")
    await create(store)
    layer.plan = failing_from(1, apsw.IOError, "sync")
    with pytest.raises(StoreUnavailable):
        await say(store, "who knows")
    with pytest.raises(StoreUnavailable):
        await say(store, "not before the disk works")
    with pytest.raises(StoreUnavailable):
        await store.state(S)
    done: list[tuple[str, str]] = []
    layer.plan = lambda operation, name, _: done.append((operation, name.rpartition("db")[2]))

    await say(store, "after")

    assert done.index(("sync", "")) < done.index(("truncate", "-wal")) < len(done) - 1
    assert done[-1] == ("sync", "-wal")
    assert (await store.maintenance.verify()).is_ok


@pytest.mark.parametrize("who", ["a reader", "the writer"])
async def test_failed_sync_is_followed_by_a_log_restart_before_the_next_commit(
    layer: FaultyVfs, open_store: Opener, path: Path, who: str
) -> None:
    store = await open_store(durability="full")
    await create(store)
    await store.state(S)
    committed_elsewhere(path)
    done: list[tuple[str, str]] = []

    def failing_once(operation: Operation, name: str, _offset: int) -> None:
        done.append((operation, name.rpartition("db")[2]))
        if operation == "sync" and done.count(("sync", "-wal")) == 1:
            raise apsw.IOError("once")

    layer.plan = failing_once
    with pytest.raises(StoreUnavailable):
        await (store.state(S) if who == "a reader" else say(store, "who knows"))
    assert ("truncate", "-wal") not in done

    await store.state(S)

    assert done.index(("sync", "")) < done.index(("truncate", "-wal"))
    layer.plan = nothing
    await say(store, "after")
    assert (await store.maintenance.verify()).is_ok


async def test_write_ahead_log_of_an_encrypted_store_is_synced(
    path: Path, synced: list[str]
) -> None:
    store = await SqliteStore.open(
        path, clock=ManualClock(), random=SeededRandom(1), key=StoreKey(b"k" * 32)
    )
    await create(store)
    synced.clear()
    await say(store, "x")
    assert synced == ["-wal"]
    await store.close()
