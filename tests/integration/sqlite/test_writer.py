"""The writer's thread: shared transactions, isolated failures, checkpoints, forks."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any, cast

import apsw
import pytest

from perdure.errors import HeadConflict, StoreUnavailable
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite import writer
from perdure.stores.sqlite.log import checkpoints
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.faulty_vfs import faulty_vfs
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener


def expecting(head: int) -> Commit:
    write = Write(stream=S, entries=(new_tree(user("mine")),), expected_head=head)
    return Commit(writes=(write,), at=1)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def exit_code_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def test_concurrently_waiting_commits_share_one_fsync(open_store: Opener) -> None:
    with faulty_vfs() as layer:
        store = await open_store(durability="full")
        await create(store)
        syncs = 0

        def plan(operation: str, _name: str, _offset: int) -> None:
            nonlocal syncs
            syncs += operation == "sync"

        layer.plan = plan
        await asyncio.gather(*(say(store, str(number)) for number in range(64)))

        assert 1 <= syncs <= 32
        assert (await store.state(S)).head == 63
        await store.close()


async def test_commits_that_follow_each_other_closely_share_one_fsync(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(SimpleQueue[Any]):
        """A queue that pauses after each job, so that the writer's thread can run."""

        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item, block, timeout)
            time.sleep(0.002)

    monkeypatch.setattr(writer, "SimpleQueue", Slow)
    with faulty_vfs() as layer:
        store = await open_store(durability="full")
        await create(store)
        synced: list[str] = []
        layer.plan = lambda operation, name, _: synced.append(name) if operation == "sync" else None
        is_busy, is_free = threading.Event(), threading.Event()

        def keep_busy(_tables: Any) -> None:
            is_busy.set()
            is_free.wait()

        database = store.handle.opened
        busy = asyncio.ensure_future(database.write(keep_busy, "normal"))
        await asyncio.to_thread(is_busy.wait)  # or it would take some of what follows with it

        async def say_twice(who: int) -> None:
            await say(store, f"{who} once")
            time.sleep(0.002)  # noqa: ASYNC251 - the writer's thread could go on meanwhile
            await say(store, f"{who} twice")

        saying = [asyncio.ensure_future(say_twice(who)) for who in range(8)]
        await asyncio.sleep(0)
        is_free.set()
        await asyncio.gather(busy, *saying)

        assert len(synced) == 2
        assert (await store.state(S)).head == 15
        await store.close()


async def test_closing_the_store_finishes_commits_requested_during_callbacks(
    open_store: Opener,
) -> None:
    store = await open_store()
    await create(store)

    async def say_twice(who: int) -> None:
        await say(store, f"{who} once")
        await say(store, f"{who} twice")

    async def say_and_close() -> None:
        await say(store, "the last")
        await store.close()

    await asyncio.gather(*(say_twice(who) for who in range(8)), say_and_close())

    again = await open_store()
    assert (await again.state(S)).head == 16


async def test_shared_transaction_uses_the_highest_requested_durability(
    open_store: Opener, path: Path
) -> None:
    with faulty_vfs() as layer:
        full, normal = await open_store(durability="full"), await open_store(durability="normal")
        await create(full)
        synced: list[str] = []
        layer.plan = lambda operation, name, _: synced.append(name) if operation == "sync" else None

        await say(normal, "not synced")
        assert synced == []
        await asyncio.gather(say(normal, "along"), say(full, "synced"))
        assert synced
        await full.close()
        await normal.close()


async def test_rejected_commit_does_not_affect_other_commits(store: SqliteStore) -> None:
    await create(store)
    outcomes = await asyncio.gather(
        say(store, "a"),
        store.commit(expecting(99)),
        say(store, "b"),
        store.commit(Commit(writes=(Write(stream=S, create=StreamHeader(S, 1)),), at=1)),
        say(store, "c"),
        return_exceptions=True,
    )

    assert [isinstance(outcome, Exception) for outcome in outcomes] == [0, 1, 0, 1, 0]
    assert isinstance(outcomes[1], HeadConflict)
    assert (await store.state(S)).head == 2


async def test_unexpected_error_in_one_commit_does_not_affect_other_commits(
    store: SqliteStore,
) -> None:
    await create(store)

    def bug(_tables: Any) -> None:
        raise ZeroDivisionError

    database = store.handle.opened
    outcomes = await asyncio.gather(
        say(store, "a"), database.write(bug, "normal"), say(store, "b"), return_exceptions=True
    )

    assert isinstance(outcomes[1], ZeroDivisionError)
    assert [entry.seq for entry in await store.entries(S)] == [0, 1]
    assert (await store.maintenance.verify()).is_ok


async def test_multi_stream_commit_is_rolled_back_if_last_write_fails(
    store: SqliteStore,
) -> None:
    await create(store)
    new = StreamId("new")
    writes = (
        Write(stream=new, create=StreamHeader(new, 1), entries=(new_tree(user("x")),)),
        Write(stream=S, entries=(new_tree(user("y")),), expected_head=7),
    )
    with pytest.raises(HeadConflict):
        await store.commit(Commit(writes=writes, at=1))

    await say(store, "after")
    await create(store, new)
    assert (await store.maintenance.verify()).problems == ()


async def test_caller_cancelled_before_its_commit_starts_appends_nothing(
    store: SqliteStore,
) -> None:
    await create(store)
    task = asyncio.ensure_future(say(store, "never"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await say(store, "after")

    entries = await store.entries(S)
    assert entries[-1].message == user("after")
    assert (await store.maintenance.verify()).is_ok


async def test_write_ahead_log_is_checkpointed_during_writes(
    store: SqliteStore, path: Path
) -> None:
    await create(store)
    log = path.with_name(path.name + "-wal")
    for _ in range(80):
        await say(store, "x" * 500_000)
    async with asyncio.timeout(60):  # a checkpoint that a busy disk delays lets the log grow
        while size_of(log) >= 2 * checkpoints.RESTART_PAGES * 4096:
            await say(store, "x" * 500_000)

    assert size_of(path) > 4 * 2**20
    await store.close()
    assert size_of(log) == 0


def test_wal_that_cannot_restart_is_checkpointed_less_often(path: Path) -> None:
    copies = 0

    class Counting(apsw.Connection):
        def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
            nonlocal copies
            copies += 1
            return super().wal_checkpoint(dbname, mode)

    checkpointer = checkpoints.Checkpointer(lambda: cast("Connection", Counting(str(path))))
    for pages in range(0, checkpoints.RESTART_PAGES, 10):
        checkpointer.grown(pages)
    checkpointer.close()

    assert 1 <= copies < checkpoints.RESTART_PAGES // checkpoints.CHECKPOINT_PAGES


def test_wal_restarts_at_the_same_size_each_time(path: Path) -> None:
    modes: list[int] = []
    is_restarted = threading.Event()

    class Recording(apsw.Connection):
        def wal_checkpoint(self, dbname: str | None = None, mode: int = 0) -> tuple[int, int]:
            modes.append(mode)
            if mode == apsw.SQLITE_CHECKPOINT_RESTART:
                is_restarted.set()
            return super().wal_checkpoint(dbname, mode)

    checkpointer = checkpoints.Checkpointer(lambda: cast("Connection", Recording(str(path))))
    checkpointer.grown(checkpoints.RESTART_PAGES)
    assert is_restarted.wait(60)
    for pages in (1, checkpoints.RESTART_PAGES):
        checkpointer.grown(pages)
    checkpointer.close()

    assert modes == [apsw.SQLITE_CHECKPOINT_PASSIVE, apsw.SQLITE_CHECKPOINT_RESTART] * 2


async def test_store_handle_raises_an_error_in_a_forked_process(
    store: SqliteStore, path: Path
) -> None:
    await create(store)
    child = os.fork()
    if child == 0:
        outcome = 1
        try:
            store.changes()
        except StoreUnavailable as error:
            outcome = 0 if "fork" in str(error) else 2
        finally:
            os._exit(outcome)
    assert exit_code_of(child) == 0

    await say(store, "the parent goes on")


async def test_idle_open_store_uses_no_cpu_time(store: SqliteStore) -> None:
    await create(store)
    before = time.process_time()
    await asyncio.sleep(0.3)  # what is measured is the time that passes

    assert time.process_time() - before < 0.1


async def test_closing_the_store_finishes_pending_commits(open_store: Opener) -> None:
    store = await open_store()
    await create(store)
    waiting = [asyncio.ensure_future(say(store, str(number))) for number in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*waiting)

    again = await open_store()
    assert (await again.state(S)).head == 19


async def test_write_waits_for_lock_of_another_program(store: SqliteStore, path: Path) -> None:
    await create(store)
    with raw_database(path) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(say(store, "patient"))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        other.execute("ROLLBACK")

    assert len(await waiting) == 1


async def test_lock_that_is_never_released_is_reported_with_its_process(
    store: SqliteStore, open_store: Opener, path: Path
) -> None:
    await create(store)
    await open_store(lock_timeout_s=0.05)
    with raw_database(path) as other:
        other.execute("BEGIN IMMEDIATE")
        told = await asyncio.gather(
            *(say(store, f"impatient {n}") for n in range(5)), return_exceptions=True
        )
        other.execute("ROLLBACK")
    assert all("locked for too long" in str(error) for error in told)
    assert len(set(map(id, told))) == 5  # each has one to himself, with his own notes and frames

    await say(store, "after")
