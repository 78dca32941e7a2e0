"""All flows of a process share one watcher of the store, however often waiters start and end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from perdure.client.flows.waker import Waker
from perdure.errors import StoreUnavailable
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom

FLOW = StreamId("f")
PATIENCE_S = 60.0


async def commit(store: MemoryStore, stream: str) -> None:
    header = StreamHeader(StreamId(stream), 1)
    await store.commit(Commit(writes=(Write(stream=header.id, create=header),), at=1))


def followers() -> list[asyncio.Task[object]]:
    return [task for task in asyncio.all_tasks() if task.get_name() == "perdure-flow-waker"]


async def twice(woken: AsyncIterator[int | None]) -> None:
    await anext(woken)
    await anext(woken)


async def test_second_and_later_waiters_share_one_store_watcher() -> None:
    store = MemoryStore(clock=ManualClock(), random=SeededRandom())
    waker = Waker(store)
    alone = waker.wakes(FLOW)
    await asyncio.wait_for(anext(alone), PATIENCE_S)
    await alone.aclose()
    (follower,) = followers()
    await commit(store, "other")
    await asyncio.wait((follower,), timeout=PATIENCE_S)
    assert follower.done()

    waiting = [waker.wakes(FLOW) for _ in range(5)]
    await asyncio.wait_for(asyncio.gather(*(twice(woken) for woken in waiting)), PATIENCE_S)

    assert len(followers()) == 1
    await waker.close()
    assert followers() == []
    await store.close()


async def test_waiters_get_an_error_when_the_store_is_closed() -> None:
    store = MemoryStore(clock=ManualClock(), random=SeededRandom())
    waker = Waker(store)
    woken = waker.wakes(FLOW)
    await asyncio.wait_for(anext(woken), PATIENCE_S)
    waiting = asyncio.ensure_future(anext(woken))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StoreUnavailable, match="it was closed"):
        await asyncio.wait_for(waiting, PATIENCE_S)
    await waker.close()


class SlowStore(MemoryStore):
    """A store whose `position` ends slowly after a cancellation."""

    is_ending: asyncio.Event
    may_end: asyncio.Event

    async def position(self) -> int:
        try:
            return await asyncio.Future[int]()
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def test_cancellation_of_a_close_is_raised_to_the_caller() -> None:
    store = SlowStore(clock=ManualClock(), random=SeededRandom())
    store.is_ending, store.may_end = asyncio.Event(), asyncio.Event()
    waker = Waker(store)
    woken = waker.wakes(FLOW)
    waiting = asyncio.ensure_future(anext(woken))
    while not followers():  # noqa: ASYNC110 - the follower says nothing before it waits
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    closing = asyncio.create_task(waker.close())
    await store.is_ending.wait()
    closing.cancel()
    await asyncio.sleep(0)
    store.may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await closing
    waiting.cancel()
    await asyncio.wait((waiting,))
    await store.close()
