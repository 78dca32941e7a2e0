"""Work that dead workers had begun, and work whose claim was lost, is queued again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

import psycopg
import pytest

from perdure import Chat, Runtime, Store
from perdure.client.clock import system_random
from perdure.client.cluster.runner import cluster_of
from perdure.stores.cluster.limits import Limit, Slot, slot_id
from perdure.stores.postgres.cluster import takeover
from perdure.stores.postgres.cluster.takeover import (
    NAMESPACE,
    STALLED_S,
    _end_stalled,  # pyright: ignore[reportPrivateUsage] - its result needs no worker
    take_over,
)
from perdure.stores.postgres.rows import key_of
from perdure.stores.postgres.store import PostgresStore
from tests.conformance.store.building import S, create, said
from tests.fakes.postgres import PostgresServer, serving
from tests.fakes.worker_program import SPECIAL
from tests.fakes.workers import READY_S, WorkerProcess, until, workers

pytestmark = pytest.mark.full_only

GHOST = "ghost"
"""The id of a worker that has no process; this id also owns leases."""

Connection = psycopg.Connection[tuple[Any, ...]]

LOCKERS = 11


@pytest.fixture(scope="module")
def ordinary(address: str, folder: Path) -> Iterator[WorkerProcess]:
    """Start a worker that cannot run the turns of `SPECIAL`."""
    with workers(1, address, folder) as (started,):
        yield started


async def claim(address: str, chat: Chat, worker: str) -> None:
    """Claim the queued work of `chat` for `worker` without notifying this worker."""

    async def is_claimed() -> bool:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as db:
            claimed = await db.execute(
                "UPDATE perdure_work.workflow_status SET status = 'PENDING', executor_id = %s "
                "WHERE queue_partition_key = %s AND status = 'ENQUEUED'",
                (worker, chat.id),
            )
            return claimed.rowcount == 1

    await until(is_claimed)


async def state_of(address: str, chat: Chat) -> str:
    """Return the state of the work of `chat`."""
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as db:
        found = await db.execute(
            "SELECT status FROM perdure_work.workflow_status WHERE queue_partition_key = %s",
            (chat.id,),
        )
        ((state,),) = await found.fetchall()
        return str(state)


@pytest.mark.all_only
async def test_job_whose_assignment_response_was_lost_is_queued_again(
    store: Store, address: str, folder: Path, ordinary: WorkerProcess
) -> None:
    async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
        chat = await runtime.start(SPECIAL)
        turn = chat.send("lost")
        await claim(address, chat, ordinary.id)

        async def is_queued() -> bool:
            return await state_of(address, chat) == "ENQUEUED"

        await until(is_queued)
        async with workers(1, address, folder, factory="special"):
            assert "lost" in (await turn).text


@pytest.mark.usefixtures("ordinary")
async def test_locked_session_of_a_dead_worker_does_not_delay_other_sessions(
    store: Store, address: str
) -> None:
    async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
        chats = [await runtime.start(SPECIAL) for _ in range(2)]
        turns = [chat.send("taken over") for chat in chats]
        for chat in chats:
            await claim(address, chat, GHOST)
            await store.backend.acquire_lease(chat.id, GHOST, 60_000)
        works = await cluster_of(store.backend).begun(GHOST)
        assert {work.stream for work in works} == {chat.id for chat in chats}
        locked, free = chats
        with (
            psycopg.connect(address, autocommit=True) as db,
            psycopg.connect(address) as stopped,
        ):
            stopped.execute("SELECT FROM perdure.stream WHERE id = %s FOR UPDATE", (locked.id,))
            assert take_over(db, GHOST, GHOST, works) == 1
            assert await state_of(address, free) == "ENQUEUED"
            assert await state_of(address, locked) == "PENDING"
            assert (await store.backend.state(free.id)).lease is None
            lease = (await store.backend.state(locked.id)).lease
            assert lease is not None
            assert lease.owner == GHOST
            stopped.rollback()
            assert take_over(db, GHOST, GHOST, works) == 1
            assert take_over(db, GHOST, GHOST, works) == 0
        assert await state_of(address, locked) == "ENQUEUED"
        assert (await store.backend.state(locked.id)).lease is None
        for turn in turns:
            await turn.stop()


@pytest.mark.usefixtures("ordinary")
async def test_work_that_another_worker_has_by_now_is_not_queued_again(
    store: Store, address: str
) -> None:
    async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
        chat = await runtime.start(SPECIAL)
        turn = chat.send("taken over")
        await claim(address, chat, GHOST)
        works = await cluster_of(store.backend).begun(GHOST)
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(
                "UPDATE perdure_work.workflow_status SET executor_id = 'other' "
                "WHERE queue_partition_key = %s",
                (chat.id,),
            )
            assert take_over(db, GHOST, GHOST, works) == 0
            assert await state_of(address, chat) == "PENDING"
            assert take_over(db, "other", "other", works) == 1
        await turn.stop()


@pytest.mark.usefixtures("ordinary")
async def test_worker_death_is_counted_only_for_turns_that_ran(store: Store, address: str) -> None:
    """Turns that wait for a slot, or whose slot is not stored yet, did not run."""
    limits = cluster_of(store.backend).limits
    async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
        ran, waited, taken = chats = [await runtime.start(SPECIAL) for _ in range(3)]
        turns = [chat.send("of a limited provider") for chat in chats]
        for chat in chats:
            await claim(address, chat, GHOST)
        works = {work.stream: work for work in await cluster_of(store.backend).begun(GHOST)}
        await limits.set_limit(Limit(subject="provider:other", turns=1))
        with psycopg.connect(address, autocommit=True) as db:
            db.execute(  # it reports later than now, so the ordinary worker does not take over
                "INSERT INTO perdure.worker "
                "(id, owner, version, protocol, namespaces, agents, slots, beat_at) "
                "VALUES (%s, %s, '', 2, '{}', '{}', 1, now() + interval '1 hour')",
                (GHOST, GHOST),
            )
            subjects = ("namespace:default", "provider:other")
            slots = [
                Slot(slot_id(GHOST, works[chat.id].id), "default", subjects, is_running)
                for chat, is_running in ((ran, True), (waited, False))
            ]
            await limits.sync_slots(GHOST, slots)
            assert take_over(db, GHOST, GHOST, works.values()) == 3
            losses = {
                id: await cluster_of(store.backend).losses(work) for id, work in works.items()
            }
            db.execute("DELETE FROM perdure.worker WHERE id = %s", (GHOST,))
        assert losses == {ran.id: 1, waited.id: 0, taken.id: 0}
        await limits.set_limit(Limit(subject="provider:other"))
        for turn in turns:
            await turn.stop()


@pytest.mark.usefixtures("ordinary")
async def test_takeover_ends_only_stalled_connections_of_the_same_login(
    postgres: PostgresServer, store: Store, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not postgres.is_ours:
        pytest.skip("the named server may not let its login make another")
    monkeypatch.setattr(takeover, "ENDING_S", READY_S)  # a busy server ends a connection late
    with ExitStack() as connections:

        def connected(**settings: Any) -> Connection:
            return connections.enter_context(psycopg.connect(address, **settings))

        # it sees what others do, but may not end it
        connected(autocommit=True).execute(
            "CREATE ROLE lost_work LOGIN IN ROLE pg_read_all_stats, perdure_app;"
            "GRANT USAGE ON SCHEMA perdure_work TO lost_work;"
            "GRANT ALL ON ALL TABLES IN SCHEMA perdure_work TO lost_work"
        )
        async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
            chats = [await runtime.start(SPECIAL) for _ in range(3)]
            turns = [chat.send("taken over") for chat in chats]
            for chat in chats:
                await claim(address, chat, GHOST)
                await store.backend.acquire_lease(chat.id, GHOST, 60_000)
            works = await cluster_of(store.backend).begun(GHOST)
            other, *stalled = connected(), *(connected(user="lost_work") for _ in range(2))
            for holder, chat in zip((other, *stalled), chats, strict=True):
                holder.execute(NAMESPACE, (key_of("default"),))
                holder.execute("SELECT FROM perdure.stream WHERE id = %s FOR UPDATE", (chat.id,))
            await asyncio.sleep(STALLED_S + 0.1)
            db = connected(user="lost_work", autocommit=True)
            assert take_over(db, GHOST, GHOST, works) == 2
            states = [await state_of(address, chat) for chat in chats]
            assert states == ["PENDING", "ENQUEUED", "ENQUEUED"]
            for holder in stalled:
                with pytest.raises(psycopg.OperationalError):
                    holder.execute("SELECT")
            other.rollback()
            for turn in turns:
                await turn.stop()


def make_multixacts(db: Connection, lockers: Sequence[Connection], last: int) -> None:
    """Create multixact ids up to `last`.

    PostgreSQL creates one multixact id for each new set of connections that lock the same row.
    """
    db.execute("CREATE TABLE shared AS SELECT id FROM generate_series(1, 2048) AS id")
    db.execute("ALTER TABLE shared ADD PRIMARY KEY (id)")
    sets = (each for size in range(2, LOCKERS) for each in combinations(lockers, size))
    for row, sharing in enumerate(sets, 1):
        for nth, locker in enumerate(sharing):
            locker.execute("SELECT FROM shared WHERE id = %s FOR KEY SHARE", (row,))
            made = db.execute("SELECT xmax::text::int FROM shared WHERE id = %s", (row,)).fetchone()
            assert made is not None
            if nth and made[0] >= last:
                return


@pytest.mark.all_only
async def test_takeover_does_not_confuse_a_multixact_with_a_transaction() -> None:
    with serving(is_own=True) as server, ExitStack() as connections:
        address = server.new_database()

        def connected(address: str, **settings: Any) -> Connection:
            return connections.enter_context(psycopg.connect(address, **settings))

        store = await PostgresStore.open(address, random=system_random)
        await create(store, S, said("a"))
        await store.close()
        db = connected(address, autocommit=True)
        lockers = [connected(address) for _ in range(LOCKERS)]
        for locker in lockers:
            locker.execute("SELECT pg_current_xact_id()")
        stranger = connected(server.new_database())
        id = stranger.execute("SELECT pg_current_xact_id()::text::int").fetchone()
        assert id is not None
        make_multixacts(db, lockers, id[0] - 1)
        for lock in ("FOR KEY SHARE", "FOR NO KEY UPDATE"):
            connected(address).execute("SELECT FROM perdure.stream " + lock)
        xmax = "SELECT xmax::text::int FROM perdure.stream"
        assert db.execute(xmax).fetchall() == [id]
        await asyncio.sleep(STALLED_S + 0.1)
        assert not _end_stalled(db, key_of("default"), [S])
        stranger.execute("SELECT")
