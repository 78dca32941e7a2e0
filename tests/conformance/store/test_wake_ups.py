"""A commit wakes the iterators of the streams that the commit wrote to, and no other iterators."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import S, append, create, said, texts

IDLE = StreamId("idle")
WATCHERS = 50
COMMITS = 5
QUIET_S = 0.2
ROUNDS = 5
"""Several rounds, because on a busy machine late initial wake-ups can disturb the first ones."""


class Counter:
    """A counter of the wake-ups of an iterator."""

    def __init__(self, changes: AsyncIterator[None]) -> None:
        self.count = 0
        self._moved = asyncio.Event()
        self._task = asyncio.ensure_future(self._counted(changes))

    async def _counted(self, changes: AsyncIterator[None]) -> None:
        async for _ in changes:
            self.count += 1
            self._moved.set()

    async def above(self, count: int) -> None:
        """Wait until there are more wake-ups than `count`."""
        async with asyncio.timeout(60):
            while self.count <= count:
                self._moved.clear()
                await self._moved.wait()

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait((self._task,))


async def counters(store: SessionStore, *streams: StreamId | None) -> list[Counter]:
    """Return a counter for each stream, after the initial wake-ups."""
    found = [Counter(store.changes(stream)) for stream in streams]
    await asyncio.sleep(QUIET_S)
    return found


async def two_streams(store: SessionStore) -> None:
    await create(store, S, said("a"))
    await create(store, IDLE, said("b"))


async def committed_unseen(
    store: SessionStore, busy: Sequence[Counter], idle: Sequence[Counter]
) -> list[str]:
    """Commit to S and check that each commit wakes all of `busy` and none of `idle`."""
    made: list[str] = []
    for _ in range(ROUNDS):
        before = [counter.count for counter in idle]
        for _ in range(COMMITS):
            seen = [counter.count for counter in busy]
            made.append(str(len(made)))
            await append(store, S, said(made[-1]))
            for counter, count in zip(busy, seen, strict=True):
                await counter.above(count)
        await asyncio.sleep(QUIET_S)
        if [counter.count for counter in idle] == before:
            return made
    raise AssertionError("commits woke watchers of other streams")


async def test_commit_of_this_handle_wakes_only_affected_watchers(
    store: SessionStore,
) -> None:
    await two_streams(store)
    *idle, busy, whole = await counters(store, *([IDLE] * WATCHERS), S, None)
    await committed_unseen(store, (busy, whole), idle)
    for counter in (*idle, busy, whole):
        await counter.stop()


async def test_new_watcher_is_woken_immediately(store: SessionStore) -> None:
    await create(store, S, said("a"))
    for _ in range(3):  # the first one starts the watching
        async with asyncio.timeout(60):
            await anext(aiter(store.changes(S)))


async def test_commit_of_another_handle_wakes_only_affected_watchers(data: Data) -> None:
    here, there = await data.open(), await data.open()
    await two_streams(there)
    *idle, busy, whole = await counters(here, *([IDLE] * WATCHERS), S, None)
    committed = await committed_unseen(there, (busy, whole), idle)
    assert texts(await here.entries(S))[1:] == committed
    for counter in (*idle, busy, whole):
        await counter.stop()


async def test_commit_wakes_no_watcher_in_another_namespace(data: Data) -> None:
    here, there = await data.open(), await data.open("other")
    await create(here, S, said("a"))
    await create(there, S, said("a"))
    idle = await counters(here, S, None)
    (busy,) = await counters(there, S)
    await committed_unseen(there, (busy,), idle)
    for counter in (*idle, busy):
        await counter.stop()


async def test_removed_stream_wakes_its_watchers(data: Data) -> None:
    here, there = await data.open(), await data.open()
    await create(there, S, said("a"))
    watched = await counters(here, S)
    watched += await counters(there, S)
    before = [counter.count for counter in watched]

    assert await there.retention.remove(S)
    for counter, count in zip(watched, before, strict=True):
        await counter.above(count)
        await counter.stop()


async def test_new_stream_without_entries_wakes_watchers_of_its_namespace(data: Data) -> None:
    here, there = await data.open(), await data.open()
    await create(there, S, said("a"))
    (whole,) = await counters(here, None)
    before = whole.count

    await create(there, IDLE)

    await whole.above(before)
    await whole.stop()
