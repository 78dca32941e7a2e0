"""One waker for all flows of a process: reads the new entries once and wakes each flow.

Without the waker, every flow would read its log after each of its own commits. With 200 flows at
once, each node would need 2.8 reads without the waker instead of 0.5 reads with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping

from perdure.session.ids import StreamId
from perdure.stores.session_store import SessionStore
from perdure.stores.wakeups import change

LOOK_EVERY_S = 0.01
"""The shortest time between two reads: a turn makes several commits, which are read together."""

PAGE = 1000
"""The number of new entries that are read at a time."""


class _Waiting:
    """A task that waits for changes of a stream.

    `newest` is the seq to report; None if it is unknown.
    """

    def __init__(self) -> None:
        self.moved = asyncio.Event()
        self.newest: int | None = None

    def wake(self, newest: int | None) -> None:
        """Wake the task that waits.

        If `newest` is None (unknown), it replaces a known seq. A known seq replaces None only after
        the waiting task has received the None.
        """
        if not self.moved.is_set() or self.newest is not None:
            self.newest = newest
        self.moved.set()


class Waker:
    """Passes the changes of a store to the tasks that wait for changes of a stream.

    The waker follows the store while any task waits.
    """

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._waiting: dict[StreamId, set[_Waiting]] = {}
        self._following: asyncio.Task[None] | None = None

    def wakes(self, stream: StreamId) -> AsyncGenerator[int | None]:
        """Yield at least once after every entry that is appended to `stream` after this call.

        Shape: the seq of the newest entry; None if the caller must read it from the stream.
        Raises: StoreError when the store can no longer be followed.
        """
        waiting = _Waiting()
        self._waiting.setdefault(stream, set()).add(waiting)
        return self._woken(stream, waiting)

    async def _woken(self, stream: StreamId, waiting: _Waiting) -> AsyncGenerator[int | None]:
        try:
            while True:
                following = self._followed()
                moved = asyncio.ensure_future(waiting.moved.wait())
                try:
                    tasks = (following, moved)
                    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    moved.cancel()
                if following.done():
                    if self._following is following:  # no new follower yet
                        self._following = None
                    following.result()
                waiting.moved.clear()
                yield waiting.newest
        finally:
            self._waiting[stream].discard(waiting)
            if not self._waiting[stream]:
                del self._waiting[stream]

    async def close(self) -> None:
        """Stop following the store. Raises: StoreError when the store could not be followed."""
        task, self._following = self._following, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.result()

    def _followed(self) -> asyncio.Task[None]:
        if self._following is None:
            self._following = asyncio.create_task(self._follow(), name="perdure-flow-waker")
        return self._following

    async def _follow(self) -> None:
        changes = self._store.changes()
        position = await self._store.position()
        # The feed from there does not contain earlier entries.
        self._wake(dict.fromkeys(self._waiting))
        while self._waiting:
            await change(changes, self._store.address)
            is_more = True
            while is_more:
                page = await self._store.feed(position, PAGE)
                if page:
                    position = page[-1].position
                    self._wake({each.entry.stream: each.entry.seq for each in page})
                is_more = len(page) == PAGE
            await asyncio.sleep(LOOK_EVERY_S)

    def _wake(self, newest: Mapping[StreamId, int | None]) -> None:
        for stream, seq in newest.items():
            for waiting in self._waiting.get(stream, ()):
                waiting.wake(seq)
