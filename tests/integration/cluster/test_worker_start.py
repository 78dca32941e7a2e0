"""A worker that is paused during its start, and how long a later pause can last."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure import Runtime, Store
from perdure.client.cluster.dbos_queue import LAUNCHING_MS, STALLED_MS, DbosQueue
from perdure.stores.cluster.protocol import Work
from tests.fakes.chats import until
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELPER, STANDS_STILL_AT
from tests.fakes.workers import effects, workers

pytestmark = pytest.mark.full_only


@pytest.mark.all_only
async def test_worker_paused_during_its_start_runs_work_afterwards(
    postgres: PostgresServer, folder: Path
) -> None:
    address = postgres.new_database()  # in a used one, DBOS does not write its version
    async with workers(1, address, folder, factory="standing"):
        assert [text for _, text in effects(folder)] == list(STANDS_STILL_AT)
        async with (
            perdure.open(address) as store,
            Runtime(store, agents=[HELPER], runner="workers") as runtime,
        ):
            assert "hello" in (await (await runtime.start(HELPER)).send("hello")).text


async def test_worker_paused_too_long_starts_again(postgres: PostgresServer, folder: Path) -> None:
    address = postgres.new_database()
    async with workers(1, address, folder, factory="stalled") as (worker,):
        assert "waiting for the store" in worker.log.read_text()
        async with (
            perdure.open(address) as store,
            Runtime(store, agents=[HELPER], runner="workers") as runtime,
        ):
            assert "hello" in (await (await runtime.start(HELPER)).send("hello")).text


def limit_of(queue: DbosQueue) -> str:
    with queue._engine.connect() as db:  # pyright: ignore[reportPrivateUsage] - its limit is seen there only
        return db.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()


async def test_queue_sets_a_time_limit_for_its_transactions(store: Store, address: str) -> None:
    assert store.backend.address

    async def perform(work: Work) -> str:
        raise AssertionError(work)

    queue = DbosQueue(address, "w", perform, 1, direct=address)
    try:
        assert limit_of(queue) == f"{LAUNCHING_MS // 1000}s"
        await asyncio.to_thread(queue.launch)
        assert limit_of(queue) == f"{STALLED_MS}ms"
    finally:
        await asyncio.to_thread(queue.close)


POLL = "workflow_status WHERE queue_name = q"
LOSE_POLL = f"""
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE query LIKE '%{POLL}%' AND state = 'idle' AND pid <> pg_backend_pid()
    AND datname = current_database()
"""


async def test_lost_connection_of_the_polls_is_replaced(store: Store, address: str) -> None:
    assert store.backend.address

    async def perform(work: Work) -> str:
        raise AssertionError(work)

    queue = DbosQueue(address, "w", perform, 1, direct=address)
    try:
        await asyncio.to_thread(queue.launch)
        await asyncio.to_thread(queue.listen, ["a"])
        with psycopg.connect(address, autocommit=True) as db:

            async def is_lost() -> bool:
                return db.execute(LOSE_POLL).rowcount > 0

            for _ in range(3):
                await until(is_lost)
    finally:
        await asyncio.to_thread(queue.close)
