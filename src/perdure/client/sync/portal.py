"""An event loop on a thread of its own, and the ways for other threads to have it do things.

Any number of threads may call at once. A call that is interrupted (Ctrl-C) is cancelled in the
loop. The loop ends when the portal is closed, is no longer held by anybody, or the program exits;
calls that are under way then are told that the store was closed.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from perdure.errors import StoreUnavailable
from perdure.stores.access.process import OwnProcess

T = TypeVar("T")

Close = Callable[[], Awaitable[None]]


class Portal:
    """The loop as other threads see it."""

    def __init__(self) -> None:
        self._thread = _LoopThread()
        # The thread does not hold the portal, so its end is the end of the loop.
        self._close = weakref.finalize(self, self._thread.end)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` gives, once the loop has done it.

        Raises: what `work` raises; StoreUnavailable once the portal is closed; RuntimeError on the
        loop's own thread, which would wait for itself for ever.
        """
        call = _Call(work)
        try:
            self._thread.submit(call)
            call.wait()
        except BaseException:  # Ctrl-C arrives here, while the loop knows nothing of it
            call.cancel()
            call.wait()
            raise
        try:
            return call.result()
        except asyncio.CancelledError as error:
            if self._thread.is_closed:
                raise _closed() from error
            raise

    def run(self, function: Callable[[], T]) -> T:
        """What `function` gives, called inside the loop. Raises: as `call`."""

        async def work() -> T:
            return function()

        return self.call(work())

    def iterate(self, iterable: AsyncIterable[T]) -> Iterator[T]:
        """The items of `iterable`, each fetched when it is asked for. Raises: as `call`."""
        iterator = self.run(lambda: aiter(iterable))
        try:
            while not isinstance(item := self.call(_next(iterator)), _Exhausted):
                yield item
        finally:
            if self._thread.is_usable:
                self.call(_close(iterator))

    def closes(self, close: Close) -> None:
        """Await `close` before the loop ends. It ends the tasks that run now."""
        self._thread.closers.append(close)
        self._thread.kept |= self.run(_others)

    def close(self) -> None:
        """Cancel what runs, close what is to be closed, and end the loop. May be called twice."""
        self._close()


class _Call(Generic[T]):
    """A coroutine that the loop runs for another thread.

    Ctrl-C may come between any two instructions of the thread that calls. So it waits on a queue
    that is made in C: an Event could be left locked for ever by an exception at the wrong moment.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_over = False
        self._ends: SimpleQueue[None] = SimpleQueue()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have `loop` run the coroutine."""
        self._loop = loop
        loop.call_soon_threadsafe(self._begin)

    def wait(self) -> None:
        """Wait until the coroutine has ended, however it ends."""
        while not self._is_over:
            self._ends.get()

    def result(self) -> T:
        """What it gave or raised, once it has ended."""
        assert self._task is not None
        return self._task.result()

    def cancel(self) -> None:
        """Have the coroutine end; one that no loop has been given ends at once."""
        if self._loop is None:
            self._end()
            return
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:  # the loop is closed: the coroutine has ended with it
            self._end()

    def _begin(self) -> None:
        if not self._is_over and self._loop is not None:
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(lambda _: self._end())

    def _cancel(self) -> None:
        if self._task is None:  # interrupted before it was told to begin
            self._end()
        else:
            self._task.cancel()

    def _end(self) -> None:
        if self._task is None:
            self._work.close()
        self._is_over = True
        self._ends.put(None)


class _LoopThread:
    """A thread that serves a loop until it is told to end."""

    def __init__(self) -> None:
        self.closers: list[Close] = []
        self.kept: set[asyncio.Task[Any]] = set()
        """The tasks that the closers end, such as those of a pool of connections.

        Cancelled from here, one of them may take it for the end of the job it is at, and go on.
        """
        self.is_closed = False
        self._process = OwnProcess("the store")
        self._submitting = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="perdure-blocking", daemon=True)
        self._thread.start()

    def submit(self, call: _Call[Any]) -> None:
        """Have the loop do what `call` is for."""
        self._process.check()  # a forked child has no thread that would do it
        # Under the lock: whatever is submitted comes before the end, and is cancelled by it.
        with self._submitting:
            if not self.is_closed and threading.current_thread() is not self._thread:
                call.begin(self._loop)
                return
        if self.is_closed:
            raise _closed()
        raise RuntimeError("a coroutine cannot use perdure.blocking: use perdure.open there")

    @property
    def is_usable(self) -> bool:
        """Whether calls are possible: it is open, and this is no forked child."""
        return self._process.is_this and not self.is_closed

    def end(self) -> None:
        """End the loop, and wait for that unless this is its own thread, or a forked child."""
        if not self._process.is_this:
            return
        with self._submitting:
            self.is_closed = True
            asyncio.run_coroutine_threadsafe(self._ending(), self._loop)
        if threading.current_thread() is not self._thread:  # else the garbage collector came by
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # A task that had just finished has its caller's answer still in the loop's queue.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _ending(self) -> None:
        await _cancel(_others() - self.kept)
        try:
            for close in self.closers:
                await close()
        finally:
            await _cancel(_others())
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()
            self._loop.stop()


class _Exhausted:
    """Stands for the end of an iterator: StopAsyncIteration cannot leave a generator."""


def _others() -> set[asyncio.Task[Any]]:
    """The tasks of this loop, without the one that asks."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store", "it was closed")


async def _next(iterator: AsyncIterator[T]) -> T | _Exhausted:
    return await anext(iterator, _Exhausted())


async def _close(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()
