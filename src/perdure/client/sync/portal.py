"""An event loop on a thread of its own, and the ways for other threads to have it do things.

Any number of threads may call at once. A call that is interrupted (Ctrl-C) is cancelled in the
loop. The loop ends when the portal is closed, is no longer used, or the program exits.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from perdure.errors import StoreUnavailable

T = TypeVar("T")
H = TypeVar("H")

Close = Callable[[], Awaitable[None]]

_endings: set[asyncio.Task[None]] = set()


class Portal:
    """The loop as other threads see it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=_serve, args=(self._loop,), name="perdure-blocking", daemon=True
        )
        self._closers: list[Close] = []
        # Neither thread nor finaliser holds the portal, so it ends with its last handle.
        self._end = weakref.finalize(self, _end, self._loop, self._thread, self._closers)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, once the loop has done it.

        Raises: what `work` raises; StoreUnavailable once the portal is closed; RuntimeError on the
        loop's own thread, which would wait for itself for ever.
        """
        if not self._end.alive or threading.current_thread() is self._thread:
            work.close()
            if not self._end.alive:
                raise StoreUnavailable("the store", "it was closed")
            raise RuntimeError("a coroutine cannot use perdure.blocking: use perdure.open there")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:  # Ctrl-C arrives here, while the loop knows nothing of it
            future.cancel()
            raise

    def run(self, function: Callable[[], T]) -> T:
        """What `function` gives, called inside the loop. Raises: as `call`."""

        async def work() -> T:
            return function()

        return self.call(work())

    def iterate(self, iterable: AsyncIterable[T]) -> Iterator[T]:
        """The items of `iterable`, each fetched when it is asked for."""
        iterator = self.run(lambda: aiter(iterable))
        try:
            while not isinstance(item := self.call(_next(iterator)), _Exhausted):
                yield item
        finally:
            if self._end.alive:
                self.call(_close(iterator))

    def closes(self, close: Close) -> None:
        """Await `close` before the loop ends."""
        self._closers.append(close)

    def close(self) -> None:
        """Cancel what runs, close what is to be closed, and end the loop. May be called twice."""
        self._end()


class Handle(Generic[H]):
    """A handle without async: every call goes through `portal` to the handle it stands for."""

    def __init__(self, portal: Portal, asynchronous: H) -> None:
        self.portal = portal
        self.asynchronous = asynchronous


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    loop.run_forever()
    loop.close()


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, closers: list[Close]) -> None:
    ending = _ending(loop, closers)
    if threading.current_thread() is thread:  # the garbage collector may have come by here
        task = loop.create_task(ending)
        _endings.add(task)
        task.add_done_callback(_endings.discard)
        return
    asyncio.run_coroutine_threadsafe(ending, loop)
    thread.join()


async def _ending(loop: asyncio.AbstractEventLoop, closers: list[Close]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    try:
        for close in closers:
            await close()
    finally:
        await loop.shutdown_asyncgens()
        await loop.shutdown_default_executor()
        loop.stop()


class _Exhausted:
    """Stands for the end of an iterator: StopAsyncIteration cannot leave a generator."""


async def _next(iterator: AsyncIterator[T]) -> T | _Exhausted:
    return await anext(iterator, _Exhausted())


async def _close(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()
