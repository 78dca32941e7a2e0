"""A caller of the writer awaits a future; cancellation and errors reach the right task."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from pathlib import Path

import pytest

from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.writer import Answer
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.streams import S, create, say

WHO: ContextVar[str] = ContextVar("WHO")


async def test_task_continues_as_soon_as_its_thread_result_is_available() -> None:
    loop = asyncio.get_running_loop()
    answer: Answer[int] = Answer(loop)
    heard: list[object] = []

    async def wait() -> None:
        heard.append(await answer)

    def give() -> None:
        answer.give(7, None)
        heard.append("given")

    task = asyncio.create_task(wait())
    loop.call_soon(give)
    await task
    assert heard == [7, "given"]


async def test_awaiting_an_available_thread_result_returns_immediately() -> None:
    answer: Answer[int] = Answer(asyncio.get_running_loop())
    answer.give(7, None)
    assert await answer == 7


async def test_error_from_a_thread_is_raised_to_the_waiting_task() -> None:
    answer: Answer[int] = Answer(asyncio.get_running_loop())
    asyncio.get_running_loop().call_soon(answer.give, None, KeyError("why"))
    with pytest.raises(KeyError, match="why"):
        await answer


async def test_cancelled_waiter_gets_cancel_message() -> None:
    answer: Answer[int] = Answer(asyncio.get_running_loop())

    async def wait() -> None:
        await answer

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    assert task.cancel("by somebody")
    with pytest.raises(asyncio.CancelledError, match="by somebody"):
        await task
    answer.give(7, None)  # too late, and of no consequence
    assert answer.is_cancelled
    assert not answer.cancel()


async def test_caller_that_times_out_does_not_disturb_the_next_commit(store: SqliteStore) -> None:
    await create(store)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await say(store, "in vain, or not")

    await say(store, "after it")
    assert (await store.maintenance.verify()).problems == ()


async def test_task_keeps_its_context_variables_during_a_commit(store: SqliteStore) -> None:
    await create(store)

    async def write(name: str) -> str:
        WHO.set(name)
        await say(store, name)
        return WHO.get()

    names = [f"writer {number}" for number in range(8)]
    assert await asyncio.gather(*map(write, names)) == names


def test_task_that_exits_program_does_not_block_other_answers(path: Path) -> None:
    loop = asyncio.new_event_loop()
    store = loop.run_until_complete(
        SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1))
    )
    loop.run_until_complete(create(store))

    async def leave() -> None:
        await say(store, "the last words")
        raise SystemExit

    last = loop.create_task(leave())
    others = [loop.create_task(say(store, str(number))) for number in range(8)]
    with pytest.raises(SystemExit):
        loop.run_until_complete(last)

    loop.run_until_complete(asyncio.gather(*others))

    assert loop.run_until_complete(store.state(S)).head == 8
    loop.run_until_complete(store.close())
    loop.close()
