"""Work that dead workers had begun, and work whose claim was lost, is queued again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from perdure import Chat, Runtime, Store
from perdure.client.cluster.runner import cluster_of
from perdure.stores.postgres.cluster.takeover import take_over
from tests.fakes.worker_program import SPECIAL
from tests.fakes.workers import WorkerProcess, until, workers

pytestmark = pytest.mark.full_only

GHOST = "ghost"
"""A worker, and the owner of its leases."""


@pytest.fixture(scope="module")
def ordinary(address: str, folder: Path) -> Iterator[WorkerProcess]:
    """A worker that cannot do the work of `SPECIAL`."""
    with workers(1, address, folder) as (started,):
        yield started


async def claim(address: str, chat: Chat, worker: str) -> None:
    """Claim the queued work of `chat` for `worker`, which is not told."""

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


async def test_claim_whose_answer_was_lost_is_queued_again(
    store: Store, address: str, folder: Path, ordinary: WorkerProcess
) -> None:
    async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
        chat = await runtime.start(SPECIAL)
        turn = chat.send("lost")
        await claim(address, chat, ordinary.id)

        async def is_queued() -> bool:
            return await state_of(address, chat) == "ENQUEUED"

        await until(is_queued)
        with workers(1, address, folder, factory="special"):
            assert "lost" in (await turn).text


@pytest.mark.usefixtures("ordinary")
async def test_locked_session_of_dead_worker_delays_no_other(store: Store, address: str) -> None:
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
