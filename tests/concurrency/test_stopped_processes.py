"""A process that was stopped while it holds a lock blocks others only for a limited time.

In each case, the call that needs the lock raises an error within the limit and names the stopped
process. While the call waits, other sessions of the same handle can be written, and the handle can
be closed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from perdure.client.flows.locations import write_record
from perdure.client.open import open as open_store
from perdure.client.retention import set_quota
from perdure.client.store import Store
from perdure.errors import StoreUnavailable
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.stores.jsonl.retention.content_gc import LOCK as CONTENTS
from perdure.stores.jsonl.retention.limits import QUOTA
from perdure.stores.jsonl.search.index_file import LOCK as SEARCH
from perdure.stores.maintenance import file_lock
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.quotas import Quota
from tests.fakes.postgres import PostgresServer
from tests.fakes.stopped import stopped_holder

LIMIT_S = 1.0
PATIENT_S = 600.0
"""Lock timeout of a store whose calls have to wait until a test releases the lock."""
MARGIN_S = 60.0
"""Time that a busy machine may need for an operation that ends by itself."""

Call = Callable[[Store], Awaitable[object]]


async def say(store: Store, session: str = "a", key: str | None = None) -> None:
    write = Write(stream=StreamId(session), entries=(new_tree(user("hello")),))
    await store.backend.commit(Commit(writes=(write,), at=1, idempotency_key=key))


async def lease(store: Store) -> None:
    await store.backend.acquire_lease(StreamId("a"), "me", 1000)


async def erase(store: Store) -> None:
    await store.erase("a")


async def position(store: Store) -> None:
    await say(store)  # which has no position while the feed is locked
    await store.backend.position()


async def say_with_key(store: Store) -> None:
    await say(store, "a", "k")


FORMS: dict[str, tuple[tuple[str, str], Call]] = {
    "append": (("stream", "a"), say),
    "lease": (("stream", "a"), lease),
    "erase": (("stream", "a"), erase),
    "idempotency key": (("key", "k"), say_with_key),
    "erase, contents": ((CONTENTS, ""), erase),
    "erase, index": ((SEARCH, ""), erase),
    "erase, feed": (("feed", ""), erase),
    "erase, erasure": (("erasure", ""), erase),
    "position": (("feed", ""), position),
    "quota": ((QUOTA, ""), say),
}


async def opened(stack: AsyncExitStack, address: str, limit_s: float = LIMIT_S) -> Store:
    """Return a store with the sessions a and b that waits `limit_s` for locks."""
    store = await stack.enter_async_context(open_store(address, lock_timeout_s=limit_s))
    for session in ("a", "b"):
        await store.create(id=session)
        await say(store, session)
    return store


async def check_refused(call: Awaitable[object], pid: int, name: str = "") -> None:
    began = time.monotonic()
    with pytest.raises(StoreUnavailable) as refused:
        await asyncio.wait_for(call, LIMIT_S + MARGIN_S)
    assert time.monotonic() - began >= LIMIT_S - 0.2
    assert (name or f"process {pid} ") in str(refused.value)


@pytest.mark.parametrize("form", FORMS)
async def test_session_file_lock_of_a_stopped_process_blocks_no_other_call(
    tmp_path: Path, form: str
) -> None:
    (kind, name), call = FORMS[form]
    async with AsyncExitStack() as stack:
        address = f"jsonl:///{tmp_path}?dialect=operator"
        store = await opened(stack, address)
        patient = await stack.enter_async_context(open_store(address, lock_timeout_s=PATIENT_S))
        if form == "quota":
            await set_quota(store, Quota(max_entries=10**6))
        with stopped_holder("folder", tmp_path, kind, name) as pid:
            waiting = asyncio.ensure_future(call(patient))
            await check_refused(call(store), pid)
            async with asyncio.timeout(MARGIN_S):
                if form != "quota":
                    await say(patient, "b")
                assert len(await patient.backend.entries(StreamId("b"))) >= 1
            assert not waiting.done()
        await waiting  # the lock is free again


async def test_append_succeeds_while_a_stopped_process_locks_the_feed_file(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        store = await opened(stack, f"jsonl:///{tmp_path}?dialect=operator", PATIENT_S)
        with stopped_holder("folder", tmp_path, "feed", ""):
            await asyncio.wait_for(say(store), MARGIN_S)
        assert len(await store.backend.feed(0)) == 3
        assert (await store.verify()).problems == ()


async def test_store_of_session_files_closes_while_a_call_waits(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        store = await opened(stack, f"jsonl:///{tmp_path}?dialect=operator", PATIENT_S)
        with stopped_holder("folder", tmp_path, "stream", "a"):
            waiting = asyncio.ensure_future(say(store))
            await asyncio.sleep(0.1)
            await asyncio.wait_for(store.close(), MARGIN_S)
            with pytest.raises(StoreUnavailable, match="closed"):
                await asyncio.wait_for(waiting, MARGIN_S)


async def test_lock_timeout_error_reports_the_stopped_sqlite_writer(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with AsyncExitStack() as stack:
        store = await opened(stack, f"sqlite:///{file}")
        with stopped_holder("sqlite", file, "IMMEDIATE") as pid:
            await check_refused(say(store), pid)
        await say(store)


async def test_stopped_sqlite_writer_blocks_no_reader(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with AsyncExitStack() as stack:
        store = await opened(stack, f"sqlite:///{file}", PATIENT_S)
        with stopped_holder("sqlite", file, "IMMEDIATE"):
            waiting = asyncio.ensure_future(say(store))
            await asyncio.sleep(0.1)
            async with asyncio.timeout(MARGIN_S):
                assert len(await store.backend.entries(StreamId("b"))) == 1
            assert not waiting.done()
        await waiting


async def test_sqlite_store_closes_while_a_call_waits(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    async with AsyncExitStack() as stack:
        store = await opened(stack, f"sqlite:///{file}", PATIENT_S)
        with stopped_holder("sqlite", file, "IMMEDIATE"):
            waiting = asyncio.ensure_future(say(store))
            await asyncio.sleep(0.1)
            await asyncio.wait_for(store.close(), MARGIN_S)
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(waiting, MARGIN_S)


async def test_sqlite_opening_reports_a_stopped_process_with_an_exclusive_lock(
    tmp_path: Path,
) -> None:
    file = tmp_path / "s.db"
    async with AsyncExitStack() as stack:
        await opened(stack, f"sqlite:///{file}")
    async with AsyncExitStack() as stack:
        with stopped_holder("sqlite", file, "EXCLUSIVE") as pid:
            await check_refused(opened(stack, f"sqlite:///{file}"), pid)


ROW = "SELECT 1 FROM perdure.stream WHERE id = 'a' FOR UPDATE"
MIGRATION = "SELECT pg_advisory_xact_lock((20582::bigint << 48))"
PROGRAM = "a stopped program"


async def test_row_lock_of_a_stopped_program_blocks_no_other_session(
    postgres: PostgresServer,
) -> None:
    address = postgres.take()
    async with AsyncExitStack() as stack:
        store = await opened(stack, address)
        patient = await stack.enter_async_context(open_store(address, lock_timeout_s=PATIENT_S))
        with stopped_holder("postgres", address, ROW) as pid:
            waiting = asyncio.ensure_future(say(patient))
            await check_refused(say(store), pid, PROGRAM)
            await asyncio.wait_for(say(patient, "b"), MARGIN_S)
            assert not waiting.done()
        await waiting
    postgres.give_back(address)


async def test_postgres_store_closes_while_a_call_waits(postgres: PostgresServer) -> None:
    address = postgres.take()
    async with AsyncExitStack() as stack:
        store = await opened(stack, address, PATIENT_S)
        with stopped_holder("postgres", address, ROW):
            waiting = asyncio.ensure_future(say(store))
            await asyncio.sleep(0.1)
            await asyncio.wait_for(store.close(), MARGIN_S)
            with pytest.raises(StoreUnavailable):
                await asyncio.wait_for(waiting, MARGIN_S)
    postgres.give_back(address)


async def test_postgres_opening_reports_a_program_stopped_during_migration(
    postgres: PostgresServer,
) -> None:
    address = postgres.new_database()
    async with AsyncExitStack() as stack:
        with stopped_holder("postgres", address, MIGRATION) as pid:
            await check_refused(opened(stack, address), pid, PROGRAM)
    postgres.drop(address)


def test_error_for_a_lock_of_a_stopped_process_contains_the_process_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "LOCK_TIMEOUT_S", 0.2)
    (tmp_path / "record").mkdir()
    owner = tmp_path / "record" / ".flow"

    def write() -> None:
        write_record(StreamId("f"), tmp_path / "record", "text")

    def first_run() -> None:
        with file_lock.in_turn(tmp_path):
            pass

    write()
    owner = next(path for path in (tmp_path / "record").iterdir() if path.name.startswith("."))
    for held, call in ((owner, write), (tmp_path, first_run)):
        with (
            stopped_holder("file", held) as pid,
            pytest.raises(StoreUnavailable, match=f"process {pid} "),
        ):
            call()
        call()
