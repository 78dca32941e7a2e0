"""The listener for commits of other processes, when it starts and ends."""

from __future__ import annotations

import asyncio

import pytest

from perdure.stores.postgres.address import route_of
from perdure.stores.postgres.database import Connected, Database
from perdure.stores.postgres.notifications import Watcher
from tests.fakes.clock import SeededRandom


class SlowDatabase(Database):
    """A database whose new connection ends slowly after a cancellation."""

    is_ending: asyncio.Event
    may_end: asyncio.Event

    async def connect_apart(self) -> Connected:
        try:
            return await asyncio.Future[Connected]()
        finally:
            self.is_ending.set()
            await self.may_end.wait()


async def test_cancelled_close_raises_its_cancellation_and_ends_the_watches() -> None:
    database = SlowDatabase(route_of("postgresql://127.0.0.1:1/none"), "default", "normal")
    database.is_ending, database.may_end = asyncio.Event(), asyncio.Event()
    watcher = Watcher(database, SeededRandom())
    changes = watcher.watch()
    await asyncio.sleep(0)

    closing = asyncio.create_task(watcher.close())
    await database.is_ending.wait()
    closing.cancel()
    await asyncio.sleep(0)
    database.may_end.set()

    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(StopAsyncIteration):
        await anext(changes)


async def test_new_iterator_yields_although_the_server_accepts_no_listener() -> None:
    database = Database(route_of("postgresql://127.0.0.1:1/none"), "default", "normal")
    watcher = Watcher(database, SeededRandom())

    await asyncio.wait_for(anext(watcher.watch()), 60)
    await watcher.close()
