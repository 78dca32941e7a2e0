"""An event loop on its own thread, for calls from other threads.

Any number of threads can call at the same time. If Ctrl-C interrupts a call, the call is cancelled
in the loop. The loop ends when the portal is closed or garbage-collected, or the program exits;
calls that still run raise StoreUnavailable.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from perdure.errors import StoreUnavailable
from perdure.stores.access.cancellation import cancel_all
from perdure.stores.access.process import OwnProcess

T = TypeVar("T")

Close = Callable[[], Awaitable[None]]


class Portal:
    """Runs calls of other threads in the event loop."""

    def __init__(self) -> None:
        self._thread = _LoopThread()
        # The thread holds no reference to the portal, so collecting the portal ends the loop.
        self._close = weakref.finalize(self, self._thread.end)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop and return its result.

        Raises: the errors of `work`; StoreUnavailable after the portal is closed; RuntimeError for
        a call on the loop's own thread, because such a call would deadlock.
        """
        call = _Call(work)
        try:
            self._thread.submit(call)
            call.wait()
        except BaseException:  # Ctrl-C arrives in this thread, not in the loop
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
        """Call `function` inside the loop and return its result. Raises: the errors of `call`."""

        async def work() -> T:
            return function()

        return self.call(work())

    def iterate(self, iterable: AsyncIterable[T]) -> Iterator[T]:
        """Yield the items of `iterable`; each item is fetched when it is needed.

        Raises: the errors of `call`.
        """
        iterator = self.run(lambda: aiter(iterable))
        try:
            while not isinstance(item := self.call(_next(iterator)), _Exhausted):
                yield item
        finally:
            if self._thread.is_usable:
                self.call(_close(iterator))

    def closes(self, close: Close) -> None:
        """Register `close`, which is awaited before the loop ends.

        The tasks that run at this call are not cancelled before `close` is awaited, so `close` must
        end these tasks.
        """
        self._thread.closers.append(close)
        self._thread.kept |= self.run(_others)

    def close(self) -> None:
        """Cancel the tasks, await the registered `close` functions, and end the loop.

        You can call `close` twice.
        """
        self._close()


class _Call(Generic[T]):
    """A coroutine that the loop runs for another thread.

    Ctrl-C can arrive between any two instructions of the calling thread. The calling thread waits
    on a queue implemented in C, because an exception at the wrong moment could leave an Event
    locked forever.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_over = False
        self._ends: SimpleQueue[None] = SimpleQueue()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run the coroutine in `loop`."""
        self._loop = loop
        loop.call_soon_threadsafe(self._begin)

    def wait(self) -> None:
        """Wait until the coroutine has ended, successfully or not."""
        while not self._is_over:
            self._ends.get()

    def result(self) -> T:
        """Return the result of the ended coroutine, or raise its error."""
        assert self._task is not None
        return self._task.result()

    def cancel(self) -> None:
        """Cancel the coroutine; a coroutine that no loop has received yet ends immediately."""
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
        if self._task is None:  # interrupted before it began
            self._end()
        else:
            self._task.cancel()

    def _end(self) -> None:
        if self._task is None:
            self._work.close()
        self._is_over = True
        self._ends.put(None)


class _LoopThread:
    """A thread that runs a loop until `end`."""

    def __init__(self) -> None:
        self.closers: list[Close] = []
        self.kept: set[asyncio.Task[Any]] = set()
        """Tasks that the `closers` end, for example the tasks of a connection pool.

        The portal does not cancel these tasks, because a cancelled task of a pool may end only its
        current job and continue.
        """
        self.is_closed = False
        self._process = OwnProcess("the store")
        self._submitting = threading.Lock()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="perdure-blocking", daemon=True)
        self._thread.start()

    def submit(self, call: _Call[Any]) -> None:
        """Submit `call` to the loop."""
        self._process.check()  # a forked child has no loop thread
        # Under the lock: submitted calls precede the end, which cancels them.
        with self._submitting:
            if not self.is_closed and threading.current_thread() is not self._thread:
                call.begin(self._loop)
                return
        if self.is_closed:
            raise _closed()
        raise RuntimeError("a coroutine cannot use perdure.blocking: use perdure.open there")

    @property
    def is_usable(self) -> bool:
        """Whether calls are possible: the loop is open, and this process is not a forked child."""
        return self._process.is_this and not self.is_closed

    def end(self) -> None:
        """End the loop and wait for its end, except on its own thread or in a forked child."""
        if not self._process.is_this:
            return
        with self._submitting:
            self.is_closed = True
            asyncio.run_coroutine_threadsafe(self._ending(), self._loop)
        # On its own thread, the garbage collector ended it.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        # The result of a task that has just finished is still in the loop's queue.
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _ending(self) -> None:
        await cancel_all(_others() - self.kept)
        try:
            for close in self.closers:
                await close()
        finally:
            await cancel_all(_others())
            await self._loop.shutdown_asyncgens()
            await self._loop.shutdown_default_executor()
            self._loop.stop()


class _Exhausted:
    """Marks the end of an iterator, because StopAsyncIteration cannot leave an async generator."""


def _others() -> set[asyncio.Task[Any]]:
    """Return the tasks of this loop, except the current one."""
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


def _closed() -> StoreUnavailable:
    return StoreUnavailable("the store", "it was closed; open it again")


async def _next(iterator: AsyncIterator[T]) -> T | _Exhausted:
    return await anext(iterator, _Exhausted())


async def _close(iterator: AsyncIterator[Any]) -> None:
    close = getattr(iterator, "aclose", None)
    if close is not None:
        await close()
