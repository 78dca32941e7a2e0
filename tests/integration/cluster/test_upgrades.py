"""Workers of two versions side by side, and the work that they do besides turns."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from perdure import Runtime, Store
from perdure.client.cluster.status import cluster_status
from perdure.stores.cluster.protocol import PROTOCOL
from tests.fakes.worker_program import HELPER
from tests.fakes.workers import effects, until, workers

pytestmark = pytest.mark.full_only

TURNS = 6


@pytest.mark.all_only
@pytest.mark.timeout(400)
async def test_rolling_upgrade_loses_no_turn_and_runs_none_twice(
    store: Store, address: str, folder: Path
) -> None:
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(TURNS)]
        with ExitStack() as stack:
            old = stack.enter_context(
                workers(1, address, folder, "--drain-seconds", "0.2", "--slots", "2")
            )
            stack.enter_context(workers(1, address, folder, protocol=PROTOCOL + 1))
            status = await cluster_status(store.backend, store.outside.clock)
            assert {each.protocol for each in status.workers} == {PROTOCOL, PROTOCOL + 1}
            turns = [
                chat.send(f'/tool once {{"text": "{chat.id}", "seconds": 2}}') for chat in chats
            ]
            await asyncio.gather(*(turn.stored() for turn in turns))
            await until(lambda: _has_effect(folder))
            old[0].send(signal.SIGTERM)  # two turns run, and the others wait in the old queue
            assert old[0].end() == 0
            replies = await asyncio.wait_for(asyncio.gather(*turns), 200)
        assert [reply.end for reply in replies] == ["stop"] * TURNS
    done = [text for _, text in effects(folder)]
    assert [done.count(each.id) for each in chats] == [1] * TURNS


async def test_worker_ends_sessions_that_are_idle(store: Store, address: str, folder: Path) -> None:
    async with Runtime(store, agents=[HELPER]) as runtime:
        chat = await runtime.start(HELPER)
        await chat.send("hello")
    with workers(2, address, folder, factory="impatient"):

        async def is_ended() -> bool:
            return (await store.backend.state(chat.id)).info.status != "active"

        await until(is_ended)
    ends = [entry async for entry in chat.session.entries(kind="session_ended")]
    assert len(ends) == 1


async def _has_effect(folder: Path) -> bool:
    return bool(effects(folder))
