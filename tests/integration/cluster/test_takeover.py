"""Workers that die, pause and continue, or leave: other workers continue their turns."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure import Runtime, Store
from perdure.client.cluster.runner import cluster_of
from perdure.events.types import Event
from perdure.stores.cluster.protocol import WorkerFacts
from perdure.stores.postgres.cluster.liveness import SILENCE_S
from tests.fakes.postgres import PostgresServer
from tests.fakes.postgres_wire import proxied
from tests.fakes.worker_program import HELD, HELPER, SPECIAL
from tests.fakes.workers import READY_S, WorkerProcess, effect_of, effects, of, until, workers

pytestmark = pytest.mark.full_only

BEAT = "SELECT extract(epoch FROM beat_at)::float8 FROM perdure.worker WHERE id = %s"


@pytest.fixture(scope="module")
def two(address: str, folder: Path) -> Iterator[list[WorkerProcess]]:
    with workers(2, address, folder, is_patient=False) as started:
        yield started


async def false_takeovers(store: Store) -> int:
    return (await cluster_of(store.backend).status()).counts.get("false_takeovers", 0)


async def test_late_outcome_of_a_stopped_worker_is_stored_after_takeover(
    store: Store, folder: Path, two: list[WorkerProcess]
) -> None:
    before = await false_takeovers(store)
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        (folder / HELD).touch()
        turn = chat.send(f'/tool once {{"text": "{chat.id}", "seconds": 0}}')
        stopped = of(await effect_of(folder, chat.id), two)
        stopped.send(signal.SIGSTOP)
        (folder / HELD).unlink()
        reply = await turn
        stopped.send(signal.SIGCONT)
        async for event in chat.session.watch():
            if isinstance(event, Event) and event.type == "agent:late_outcome":
                break
    assert reply.end == "stop"
    assert [text for _, text in effects(folder)].count(chat.id) == 1

    async def is_counted() -> bool:
        return await false_takeovers(store) > before

    await until(is_counted)
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        again = [await (await runtime.start(HELPER)).send(f"after {n}") for n in range(4)]
    assert all("after" in reply.text for reply in again)


async def test_turn_of_a_killed_worker_continues_on_another_worker(
    store: Store, folder: Path, two: list[WorkerProcess]
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        (folder / HELD).touch()
        turn = chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 0}}')
        dead = of(await effect_of(folder, chat.id), two)
        dead.kill()
        (folder / HELD).unlink()
        assert (await turn).end == "stop"
    done = [pid for pid, text in effects(folder) if text == chat.id]
    assert len(done) == 2
    assert done[0] == dead.pid != done[1]
    assert len(await store.tool_calls(session=chat.id)) == 2


@pytest.mark.all_only
async def test_turn_is_continued_after_its_worker_stopped_during_a_statement(
    postgres: PostgresServer, folder: Path
) -> None:
    if not postgres.is_ours:
        pytest.skip("the named server may have no socket here")
    address = postgres.new_database()
    async with (
        proxied(address) as (proxy, through),
        perdure.open(address) as store,
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
    ):
        stopped = WorkerProcess(through, folder, "runtime")
        try:
            await until(lambda: asyncio.to_thread(stopped.is_ready))
            chat = await runtime.start(HELPER)
            proxy.marker = b'"on_unknown":'
            turn = chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 0}}')
            await asyncio.wait_for(proxy.is_held.wait(), READY_S)
            stopped.send(signal.SIGSTOP)  # the server has the statement, but not its Sync
            async with workers(1, address, folder, is_patient=False) as (other,):
                assert (await asyncio.wait_for(turn, READY_S)).end == "stop"
                assert not proxy.released.is_set()
                proxy.released.set()
                stopped.send(signal.SIGCONT)
                assert (await chat.send("and now?")).end == "stop"
                assert [pid for pid, text in effects(folder) if text == chat.id] == [other.pid]
        finally:
            stopped.kill()
    postgres.drop(address)


@pytest.mark.all_only
async def test_turn_waits_for_worker_that_has_its_agent(
    store: Store, address: str, folder: Path, two: list[WorkerProcess]
) -> None:
    async with Runtime(store, agents=[SPECIAL], runner="workers") as runtime:
        chat = await runtime.start(SPECIAL)
        turn = chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 0}}')

        async def special() -> list[tuple[int, tuple[str, ...]]]:
            queues = (await cluster_of(store.backend).status()).queues
            return [(each.waiting, each.served_by) for each in queues if each.agent == "special"]

        async def is_queued() -> bool:
            return any(waiting for waiting, _ in await special())

        await until(is_queued)
        await asyncio.sleep(1)
        assert await special() == [(1, ())]
        async with workers(1, address, folder, factory="special") as started:
            assert (await turn).end == "stop"
            assert await effect_of(folder, chat.id) == started[0].pid


async def test_idle_worker_reports_at_least_twice_per_takeover_period(
    store: Store, address: str
) -> None:
    facts = WorkerFacts(id="w", owner="w", version="1", namespaces=("default",), agents=(), slots=1)
    worker = cluster_of(store.backend).liveness(facts)
    await asyncio.to_thread(worker.start)
    try:
        async with await psycopg.AsyncConnection.connect(address, autocommit=True) as db:
            reports: list[float] = []

            async def is_frequent() -> bool:  # at least once: a busy machine also delays reports
                row = await (await db.execute(BEAT, (facts.id,))).fetchone()
                assert row is not None
                if row[0] not in reports:
                    reports.append(row[0])
                later = reports[2:]  # the start of a worker makes up to three reports
                return any(b - a < SILENCE_S / 2 for a, b in pairwise(later))

            await until(is_frequent)
    finally:
        await asyncio.to_thread(worker.stop)
