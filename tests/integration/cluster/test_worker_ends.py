"""Workers that end: drained workers, work that kills workers, and work that is not queued."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

import perdure
from perdure import Runtime, Store
from perdure.client.cluster.runner import cluster_of
from perdure.client.cluster.status import cluster_status
from perdure.errors import TurnFailed
from perdure.stores.cluster.limits import Limit
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELD, HELPER
from tests.fakes.workers import effect_of, effects, until, workers

pytestmark = pytest.mark.full_only


async def test_drained_worker_ends_or_hands_over_its_turns(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        quick, slow = await runtime.start(HELPER), await runtime.start(HELPER)
        async with workers(1, address, folder, "--drain-seconds", "60") as started:
            ending = quick.send(f'/tool once {{"text": "{quick.id}", "seconds": 0.3}}')
            await effect_of(folder, quick.id)
            started[0].send(signal.SIGTERM)
            assert await asyncio.to_thread(started[0].end) == 0
        assert (await ending).end == "stop"

        async with workers(1, address, folder, "--drain-seconds", "0.2") as started:
            (folder / HELD).touch()
            handed = slow.send(f'/tool wait {{"text": "{slow.id}", "seconds": 0}}')
            await effect_of(folder, slow.id)
            started[0].send(signal.SIGTERM)
            assert await asyncio.to_thread(started[0].end) == 0
            (folder / HELD).unlink()

        async def nothing_runs() -> bool:
            status = await cluster_of(store.backend).status()
            return all(queue.running == 0 for queue in status.queues)

        async with workers(1, address, folder):
            assert (await handed).end == "stop"
            await until(nothing_runs)  # the queue learns of the end after the log


@pytest.mark.all_only
@pytest.mark.parametrize("limited", [None, "provider:other", "provider:scripted"])
async def test_turn_that_kills_its_workers_fails_with_reason(
    store: Store, address: str, folder: Path, limited: str | None
) -> None:
    """The turn fails whether turns are limited for this provider, for another, or not at all."""
    if limited is not None:
        await cluster_of(store.backend).limits.set_limit(Limit(subject=limited, turns=3))
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chat = await runtime.start(HELPER)
        async with workers(3, address, folder):
            turn = chat.send(f'/tool die {{"text": "{chat.id}"}}')

            async def has_killed_three() -> bool:
                return [text for _, text in effects(folder)].count(chat.id) == 3

            await until(has_killed_three)
        async with workers(1, address, folder):
            with pytest.raises(TurnFailed, match="3 workers died"):
                await turn
    if limited is not None:
        await cluster_of(store.backend).limits.set_limit(Limit(subject=limited))


async def test_request_without_any_worker_waits_in_the_log(
    postgres: PostgresServer, folder: Path
) -> None:
    address = postgres.new_database()
    async with (
        perdure.open(address) as store,
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
    ):
        chat = await runtime.start(HELPER)
        turn = chat.send("no worker yet")
        async for entry_event in chat.session.watch():
            if entry_event.type == "session:turn_requested":
                break
        status = await cluster_status(store.backend, store.outside.clock)
        (queue,) = status.queues
        assert (queue.agent, queue.waiting, queue.served_by) == ("helper", 1, ())
        assert status.workers == ()
        async with workers(1, address, folder):
            assert "no worker yet" in (await turn).text


async def test_request_of_closed_runtime_is_left_to_the_first_worker(
    postgres: PostgresServer, folder: Path
) -> None:
    address = postgres.new_database()
    async with perdure.open(address) as store:
        async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
            chat = await runtime.start(HELPER)
            await chat.send("no worker yet").stored()

        async def is_answered() -> bool:
            return "turn_finished" in {each.kind async for each in chat.session.entries()}

        async with workers(1, address, folder):
            await until(is_answered)


async def test_request_aborted_before_any_worker_starts_never_runs(
    postgres: PostgresServer, folder: Path
) -> None:
    address = postgres.new_database()
    async with (
        perdure.open(address) as store,
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
    ):
        chat = await runtime.start(HELPER)
        turn = chat.send(f'/tool once {{"text": "{chat.id}"}}')
        async for entry_event in chat.session.watch():
            if entry_event.type == "session:turn_requested":
                break
        turn.abort()
        reply = await turn
        assert (reply.end, reply.message, reply.text) == ("aborted", None, "")
        assert [event.type async for event in turn] == ["session:turn_refused"]
        later = chat.send("and now")
        async with workers(1, address, folder):
            assert "and now" in (await later).text
    assert chat.id not in [text for _, text in effects(folder)]


@pytest.mark.all_only
async def test_request_that_the_agent_rejects_fails_with_the_reason(
    store: Store, address: str, folder: Path
) -> None:
    lenient = perdure.Agent("careful", model="scripted:echo")
    async with Runtime(store, agents=[lenient], runner="workers") as runtime:
        chat = await runtime.start(lenient)
        async with workers(1, address, folder):
            with pytest.raises(TurnFailed) as refused:
                await chat.send(f"my key is sk-ant-api03-{'a1B2' * 23}-AAAA")
            assert "and now" in (await chat.send("and now")).text
    assert refused.value.failure == "secret_pasted"
