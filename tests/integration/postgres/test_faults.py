"""Dead servers, lost connections and held locks lose and duplicate nothing."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from typing import LiteralString

import psycopg
import pytest
from psycopg import errors
from psycopg_pool import PoolTimeout

from perdure.client.clock import SystemClock, system_random
from perdure.errors import (
    InvalidEntry,
    PerdureError,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.session.ids import StreamId
from perdure.stores.postgres import migrate
from perdure.stores.postgres.append import LOCK
from perdure.stores.postgres.database import Statement, run_statements
from perdure.stores.postgres.faults import meaning_of
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.stores.retention.erase import EraseRequest
from tests.conformance.store.building import S, append, create, header, said, texts
from tests.fakes.postgres import PostgresServer, name_of, serving
from tests.fakes.samples import with_larger
from tests.integration.postgres.conftest import Database, Open

WRITERS = 4
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that a test can kill."""
    with serving(is_own=True) as server:
        yield server


# ---------------------------------------------------------------- kill -9 of the server


def keyed(writer: int, number: int) -> Commit:
    """Return a repeatable commit to one or two streams."""
    streams = [StreamId(f"w{writer}"), S][: number % 2 + 1]
    writes = tuple(
        Write(stream=stream, entries=(said(f"{writer} {number}"), said("more")))
        for stream in streams
    )
    return Commit(writes=writes, at=1, idempotency_key=f"{writer} {number}")


def each_went_on(done: list[int], before: list[int]) -> bool:
    """Return whether every writer made at least five more commits."""
    return all(now >= was + 5 for now, was in zip(done, before, strict=True))


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for a condition, with a time limit."""
    clock = SystemClock()
    deadline = clock.steady_s() + DEADLINE_S
    while not is_so():
        assert clock.steady_s() < deadline
        await asyncio.sleep(0.01)


async def committed_at_last(store: PostgresStore, commit: Commit) -> CommitResult:
    """Retry `commit` while the store is unavailable; return its result."""
    clock = SystemClock()
    until = clock.steady_s() + DEADLINE_S
    while True:
        try:
            return await store.commit(commit)
        except StoreUnavailable:
            assert clock.steady_s() < until
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kills", with_larger(1, 3))
async def test_commit_during_a_server_kill_is_neither_lost_nor_duplicated(
    own_server: PostgresServer, open_store: Open, kills: int
) -> None:
    address = own_server.new_database()
    stores = [await open_store(address) for _ in range(WRITERS)]
    await create(stores[0], S)
    for writer in range(WRITERS):
        await create(stores[writer], StreamId(f"w{writer}"))
    done = [0] * WRITERS
    is_over = asyncio.Event()

    async def write(writer: int) -> None:
        while not is_over.is_set():
            await committed_at_last(stores[writer], keyed(writer, done[writer]))
            done[writer] += 1

    writing = asyncio.gather(*(write(writer) for writer in range(WRITERS)))
    for _ in range(kills):
        before = list(done)
        await until(partial(each_went_on, done, before))
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
    is_over.set()
    await writing

    reader = await open_store(address)
    for writer in range(WRITERS):
        said_by = texts(await reader.entries(StreamId(f"w{writer}")))[::2]
        assert said_by == [f"{writer} {number}" for number in range(done[writer])]
    shared = texts(await reader.entries(S))[::2]
    expected = {f"{w} {n}" for w in range(WRITERS) for n in range(done[w]) if n % 2}
    assert sorted(shared) == sorted(expected)
    assert (await reader.maintenance.verify()).problems == ()


async def test_watchers_reconnect_after_server_restart(
    own_server: PostgresServer, open_store: Open
) -> None:
    address = own_server.new_database()
    here, there = await open_store(address), await open_store(address)
    await create(here, S, said("before"))
    changes = there.changes()
    await asyncio.wait_for(anext(changes), DEADLINE_S)
    after = (await there.feed(0))[-1].position

    await asyncio.to_thread(own_server.kill)
    await asyncio.to_thread(own_server.start)
    commit = Commit(writes=(Write(stream=S, entries=(said("after"),)),), at=1, idempotency_key="k")
    await committed_at_last(here, commit)

    async def heard() -> list[str]:
        while True:
            with suppress(StoreUnavailable):
                found = await there.feed(after)
                if found:
                    return texts([item.entry for item in found])
            await anext(changes)

    assert await asyncio.wait_for(heard(), DEADLINE_S) == ["after"]


async def test_commit_that_waits_in_a_dying_server_raises_store_unavailable(
    own_server: PostgresServer, open_store: Open
) -> None:
    address = own_server.new_database()
    store = await open_store(address)
    await create(store, S, said("a"))
    with closing(psycopg.connect(address)) as blocker:
        blocker.execute("SELECT FROM perdure.stream FOR UPDATE")
        commit = Commit(writes=(Write(stream=S, entries=(said("b"),)),), at=1, idempotency_key="k")
        waiting = asyncio.ensure_future(store.commit(commit))
        await until_somebody_waits(address)
        await asyncio.to_thread(own_server.kill)
        with pytest.raises(StoreUnavailable):
            await waiting
    await asyncio.to_thread(own_server.start)

    first = await committed_at_last(store, commit)
    again = await store.commit(commit)
    assert (again.entries, again.is_replay) == (first.entries, True)
    assert texts(await store.entries(S)) == ["a", "b"]


async def test_commit_that_ends_in_a_deadlock_is_retried(
    store: PostgresStore, db: Database
) -> None:
    await create(store, S, said("a"))
    db.execute("CREATE SEQUENCE public.tries")
    db.execute(
        "CREATE FUNCTION public.first_fails() RETURNS trigger LANGUAGE plpgsql "
        f"SECURITY DEFINER AS {FAILS}"
    )
    db.execute(
        "CREATE TRIGGER first_fails BEFORE UPDATE ON perdure.stream "
        "FOR EACH ROW EXECUTE FUNCTION public.first_fails()"
    )
    try:
        await append(store, S, said("b"))
        tries = db.execute("SELECT last_value FROM public.tries").fetchone()
    finally:
        db.execute("DROP FUNCTION public.first_fails CASCADE")
        db.execute("DROP SEQUENCE public.tries")

    assert tries == (2,)
    assert texts(await store.entries(S)) == ["a", "b"]


FAILS: LiteralString = """$$ BEGIN
    IF nextval('public.tries') = 1 THEN
        RAISE EXCEPTION 'deadlock detected' USING ERRCODE = 'deadlock_detected';
    END IF;
    RETURN NEW;
END $$"""
"""A rollback does not set a sequence back, so only the first update fails."""


async def test_erasures_of_a_store_without_an_index_run_one_after_another(
    store: PostgresStore, address: str, db: Database
) -> None:
    await create(store, S, said("a"))
    request = EraseRequest(id="e", scope="session", by="me", at=1, name=S)
    with closing(psycopg.connect(address)) as other:
        other.execute("INSERT INTO perdure.search_mark VALUES ('default', 0, 0, 0)")
        erasing = asyncio.ensure_future(store.retention.erase(request))
        await until_somebody_waits(address)
        # It waits before it locks a session: locked sessions could make others wait in a circle.
        assert db.execute("SELECT FROM perdure.stream FOR UPDATE NOWAIT").rowcount == 1
        other.rollback()

    assert (await erasing).removed.texts == 0
    assert [entry.is_erased for entry in await store.entries(S)][:1] == [True]


async def until_somebody_waits(address: str) -> None:
    """Wait until a statement waits for a lock."""
    with psycopg.connect(address, autocommit=True) as db:
        await until(lambda: db.execute("SELECT FROM pg_locks WHERE NOT granted").rowcount > 0)


# ---------------------------------------------------------------- cut connections


class Cutter:
    """A proxy between store and server that can hold back replies and cut connections.

    The cutter delays the next reply by `pause_s`, and all replies while it `is_silent`.
    """

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self._writers: list[asyncio.StreamWriter] = []
        self.is_silent = False
        self.pause_s = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the store."""
        near, far = await asyncio.open_unix_connection(str(self._socket))
        self._writers += [writer, far]
        await asyncio.gather(self._pass(reader, far), self._pass(near, writer, is_answer=True))

    async def _pass(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        with suppress(OSError):
            while data := await source.read(65_536):
                if is_answer and self.pause_s:
                    pause_s, self.pause_s = self.pause_s, 0.0
                    await asyncio.sleep(pause_s)
                if not (is_answer and self.is_silent):
                    to.write(data)
        to.close()

    def cut(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.close()
        self._writers.clear()
        self.is_silent = False


@asynccontextmanager
async def between(address: str) -> AsyncGenerator[tuple[Cutter, str]]:
    """Run a cutter; yield the cutter and the address of the database through it."""
    folder = address.partition("host=")[2]
    with tempfile.TemporaryDirectory(prefix="perdure-cut-") as own:
        cutter = Cutter(Path(folder, ".s.PGSQL.5432"))
        socket = str(Path(own, ".s.PGSQL.5432"))
        async with await asyncio.start_unix_server(cutter.serve, socket):
            try:
                yield cutter, address.replace(folder, own)
            finally:
                cutter.cut()


@pytest.fixture
async def cut(postgres: PostgresServer, address: str) -> AsyncIterator[tuple[Cutter, str]]:
    if not postgres.is_ours:
        pytest.skip("the named server may have no socket here")
    async with between(address) as made:
        yield made


async def test_commit_with_lost_reply_is_found_by_key(
    store: PostgresStore, address: str, cut: tuple[Cutter, str]
) -> None:
    cutter, through = cut
    far = await PostgresStore.open(through, random=system_random, max_connections=1)
    await create(far, S)
    await append(far, S, said("a"))  # the statement is prepared now: one message, one answer
    commit = Commit(writes=(Write(stream=S, entries=(said("b"),)),), at=1, idempotency_key="k")
    watcher = far.handle.watcher
    await until(lambda: watcher._telling is None)  # pyright: ignore[reportPrivateUsage] - it shows that
    cutter.is_silent = True
    waiting = asyncio.ensure_future(far.commit(commit))
    with psycopg.connect(address, autocommit=True) as db:
        await until(lambda: db.execute("SELECT FROM perdure.entry WHERE seq = 1").rowcount == 1)
    cutter.cut()
    with pytest.raises(StoreUnavailable):
        await waiting

    again = await far.commit(commit)

    assert again.is_replay
    assert texts(await store.entries(S)) == ["a", "b"]
    await far.close()


async def test_commit_stalled_for_too_long_is_retried(
    store: PostgresStore, cut: tuple[Cutter, str]
) -> None:
    cutter, through = cut
    other = StreamId("other")
    far = await PostgresStore.open(through, random=system_random, max_connections=1)
    await create(far, S)
    await create(far, other)
    await far.handle.db.limit_idle(1000)
    await append(far, S, said("a"))
    watcher = far.handle.watcher
    await until(lambda: watcher._telling is None)  # pyright: ignore[reportPrivateUsage] - it shows that
    cutter.pause_s = 2.0
    writes = tuple(Write(stream=each, entries=(said("b"),)) for each in (S, other))

    await far.commit(Commit(writes=writes, at=1))

    assert not cutter.pause_s
    assert texts(await store.entries(S)) == ["a", "b"]
    assert texts(await store.entries(other)) == ["b"]
    await far.close()


async def test_idle_transaction_after_pipeline_times_out(
    store: PostgresStore, db: Database
) -> None:
    handle = store.handle.db
    await create(store, S)
    await handle.limit_idle(50)
    lock = Statement(LOCK, (handle.namespace, [S]))
    free = "SELECT FROM perdure.stream FOR UPDATE SKIP LOCKED"

    async def stand_still() -> None:
        async with handle.connection() as connected, connected.transaction():
            await run_statements(connected, handle.namespace, [lock])
            await until(lambda: db.execute(free).rowcount == 1)
            await run_statements(connected, handle.namespace, [lock])

    with pytest.raises(StoreUnavailable):
        await stand_still()


async def test_read_is_retried_after_connection_loss(
    cut: tuple[Cutter, str],
) -> None:
    cutter, through = cut
    far = await PostgresStore.open(through, random=system_random)
    await create(far, S, said("a"))
    cutter.cut()

    assert texts(await far.entries(S)) == ["a"]
    await far.close()


async def test_handle_keeps_writing_after_connection_loss(
    cut: tuple[Cutter, str],
) -> None:
    cutter, through = cut
    far = await PostgresStore.open(through, random=system_random)
    await create(far, S, said("a"))
    cutter.cut()
    with suppress(StoreUnavailable):
        await append(far, S, said("b"), key="b")
    await append(far, S, said("b"), key="b")

    assert texts(await far.entries(S)) == ["a", "b"]
    assert (await far.maintenance.verify()).problems == ()
    await far.close()


# ---------------------------------------------------------------- waiting too long


async def test_wait_for_a_row_locked_by_another_connection_times_out(
    store: PostgresStore, db: Database, address: str, open_store: Open
) -> None:
    await create(store, S, said("a"))
    hasty = await open_store(f"{address}&options=-c%20lock_timeout%3D50")
    with psycopg.connect(db.info.dsn) as blocker:
        blocker.execute("SELECT FROM perdure.stream FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="locked for too long"):
            await append(hasty, S, said("b"))

    await append(hasty, S, said("b"))
    assert texts(await store.entries(S)) == ["a", "b"]


async def test_cancelled_commit_is_atomic(store: PostgresStore, db: Database) -> None:
    await create(store, S, said("a"))
    with psycopg.connect(db.info.dsn) as blocker:
        blocker.execute("SELECT FROM perdure.stream FOR UPDATE")
        waiting = asyncio.ensure_future(append(store, S, said("b"), said("c")))
        await until_somebody_waits(db.info.dsn)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    await append(store, S, said("d"))
    assert texts(await store.entries(S)) in (["a", "d"], ["a", "b", "c", "d"])
    assert (await store.maintenance.verify()).problems == ()


async def test_commits_to_two_streams_in_opposite_order_cause_no_deadlock(open_store: Open) -> None:
    left, right = await open_store(), await open_store()
    ids = (StreamId("a"), StreamId("b"))
    for id_ in ids:
        await create(left, header(id_))

    async def write(store: PostgresStore, order: tuple[StreamId, ...]) -> None:
        for number in range(30):
            writes = tuple(Write(stream=id_, entries=(said(str(number)),)) for id_ in order)
            await store.commit(Commit(writes=writes, at=1))

    await asyncio.gather(write(left, ids), write(right, ids[::-1]))

    assert [(await left.state(id_)).head for id_ in ids] == [59, 59]


# ---------------------------------------------------------------- the table


TABLE: list[tuple[psycopg.Error, type[PerdureError]]] = [
    (errors.ReadOnlySqlTransaction("x"), StoreReadOnly),
    (errors.DiskFull("x"), StoreFull),
    (errors.DataCorrupted("x"), StoreCorrupt),
    (errors.UndefinedTable("x"), StoreCorrupt),
    (errors.ProgramLimitExceeded("x"), InvalidEntry),
    (errors.InsufficientPrivilege("x"), StoreUnavailable),
    (errors.AdminShutdown("x"), StoreUnavailable),
    (psycopg.OperationalError("server closed the connection\nin mid-air"), StoreUnavailable),
    (psycopg.Error(), StoreUnavailable),
]


@pytest.mark.parametrize(("error", "meaning"), TABLE)
def test_every_driver_error_becomes_the_expected_store_error(
    error: psycopg.Error, meaning: type[PerdureError]
) -> None:
    told = meaning_of(error, "postgresql:///x")

    assert type(told) is meaning
    assert "\n" not in str(told)


STAYS: list[tuple[psycopg.Error, bool]] = [
    (errors.InsufficientPrivilege("x"), True),
    (errors.InvalidCatalogName("x"), True),
    (errors.InvalidPassword("x"), True),
    (errors.FeatureNotSupported("x"), True),
    (psycopg.ProgrammingError('invalid connection option "x"'), True),
    (psycopg.OperationalError("connection refused"), False),
    (PoolTimeout("x"), False),
    (errors.ConnectionFailure("x"), False),
    (errors.CannotConnectNow("x"), False),
    (errors.AdminShutdown("x"), False),
    (errors.TooManyConnections("x"), False),
    (errors.LockNotAvailable("x"), False),
    (errors.DeadlockDetected("x"), False),
    (errors.IdleInTransactionSessionTimeout("x"), False),
]


@pytest.mark.parametrize(("error", "is_lasting"), STAYS)
def test_server_rejection_that_a_retry_cannot_fix_is_permanent(
    error: psycopg.Error, is_lasting: bool
) -> None:
    told = meaning_of(error, "postgresql:///x")
    assert isinstance(told, StoreUnavailable)
    assert told.is_lasting is is_lasting


async def test_server_that_is_too_old_is_rejected_permanently(
    address: str, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrate, "OLDEST_SERVER", 990_000)
    with pytest.raises(StoreUnavailable, match="it needs PostgreSQL 99 or newer") as refused:
        await open_store(address)
    assert refused.value.is_lasting


async def test_alias_too_long_for_a_key_is_rejected(store: PostgresStore) -> None:
    await create(store)
    digits = system_random(5_000).hex()

    with pytest.raises(InvalidEntry):
        await append(store, S, said("a", alias=digits))
    assert await store.entries(S) == []
    assert name_of(store.address)
