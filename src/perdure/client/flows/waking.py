"""One waker for all flows of a process: the store's feed is read once, each flow told of its own.

Without it every flow would look at its log after every commit of any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from perdure.session.ids import StreamId
from perdure.stores.protocol import NamespaceReading


class Waker:
    """Tells streams apart in what a store says of its changes.

    It follows the store for as long as anybody waits.
    """

    def __init__(self, store: NamespaceReading) -> None:
        self._store = store
        self._waiting: dict[StreamId, set[asyncio.Event]] = {}
        self._following: asyncio.Task[None] | None = None

    async def wakes(self, stream: StreamId) -> AsyncIterator[None]:
        """Yields at least once after every entry that is appended to `stream` from now on.

        Raises: StoreError when the store can no longer be followed.
        """
        moved = asyncio.Event()
        self._waiting.setdefault(stream, set()).add(moved)
        try:
            while True:
                following = self._followed()
                waiting = asyncio.ensure_future(moved.wait())
                try:
                    tasks = (following, waiting)
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    waiting.cancel()
                if following.done():
                    self._following = None
                    following.result()
                moved.clear()
                yield
        finally:
            self._waiting[stream].discard(moved)
            if not self._waiting[stream]:
                del self._waiting[stream]

    async def close(self) -> None:
        """Stop following."""
        task, self._following = self._following, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _followed(self) -> asyncio.Task[None]:
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="perdure-flow-waker")
        return self._following

    async def _follow(self) -> None:
        changes = self._store.changes()
        position = await self._store.position()
        self._wake(*self._waiting)  # what was appended before that is not in the feed from there
        while self._waiting:
            await anext(changes)
            while page := await self._store.feed(position):
                position = page[-1].position
                self._wake(*{each.entry.stream for each in page})

    def _wake(self, *streams: StreamId) -> None:
        for stream in streams:
            for moved in self._waiting.get(stream, ()):
                moved.set()
