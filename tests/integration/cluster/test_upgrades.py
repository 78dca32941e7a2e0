"""Workers of two versions at the same time; the slots of workers; the end of idle sessions."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from perdure import Chat, Runtime, Store
from perdure.client.cluster.status import cluster_status
from perdure.stores.cluster.protocol import PROTOCOL
from tests.fakes.worker_program import HELD, HELPER
from tests.fakes.workers import effects, until, workers

pytestmark = pytest.mark.full_only

TURNS = 6
LOOKED_AT_S = 1.0
"""Twenty times the interval at which a worker looks for work."""


@pytest.mark.all_only
@pytest.mark.timeout(400)
async def test_rolling_upgrade_loses_no_turn_and_runs_no_turn_twice(
    store: Store, address: str, folder: Path
) -> None:
    (folder / HELD).touch()
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(TURNS)]
        async with AsyncExitStack() as stack:
            old = await stack.enter_async_context(
                workers(1, address, folder, "--drain-seconds", "0.2", "--slots", "2")
            )
            turns = [
                chat.send(f'/tool once {{"text": "{chat.id}", "seconds": 0}}') for chat in chats
            ]
            await until(lambda: have_begun(folder, chats, 2))  # the others wait
            await stack.enter_async_context(workers(1, address, folder, protocol=PROTOCOL + 1))
            status = await cluster_status(store.backend, store.outside.clock)
            assert {each.protocol for each in status.workers} == {PROTOCOL, PROTOCOL + 1}
            old[0].send(signal.SIGTERM)
            assert await asyncio.to_thread(old[0].end) == 0
            (folder / HELD).unlink()
            replies = await asyncio.wait_for(asyncio.gather(*turns), 200)
        assert [reply.end for reply in replies] == ["stop"] * TURNS
    done = [text for _, text in effects(folder)]
    assert [done.count(each.id) for each in chats] == [1] * TURNS


async def test_each_worker_has_its_own_number_of_slots(
    store: Store, address: str, folder: Path
) -> None:
    (folder / HELD).touch()
    async with Runtime(store, agents=[HELPER], runner="workers") as runtime:
        chats = [await runtime.start(HELPER) for _ in range(TURNS)]
        async with (
            workers(1, address, folder, "--slots", "2") as (two,),
            workers(1, address, folder, "--slots", "3") as (three,),
        ):
            turns = [
                chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 0}}') for chat in chats
            ]
            await until(lambda: have_begun(folder, chats, 5))
            await asyncio.sleep(LOOKED_AT_S)
            assert Counter(begun(folder, chats)) == {two.pid: 2, three.pid: 3}
            (folder / HELD).unlink()
            replies = await asyncio.wait_for(asyncio.gather(*turns), 200)
    assert [reply.end for reply in replies] == ["stop"] * TURNS


async def test_worker_ends_sessions_that_are_idle(store: Store, address: str, folder: Path) -> None:
    async with Runtime(store, agents=[HELPER]) as runtime:
        chat = await runtime.start(HELPER)
        await chat.send("hello")
    async with workers(2, address, folder, factory="impatient"):

        async def is_ended() -> bool:
            return (await store.backend.state(chat.id)).info.status != "active"

        await until(is_ended)
    ends = [entry async for entry in chat.session.entries(kind="session_ended")]
    assert len(ends) == 1


def begun(folder: Path, chats: list[Chat]) -> list[int]:
    """Return the process of each tool that a turn of `chats` started."""
    ids = {chat.id for chat in chats}
    return [pid for pid, text in effects(folder) if text in ids]


async def have_begun(folder: Path, chats: list[Chat], count: int) -> bool:
    return len(begun(folder, chats)) == count
