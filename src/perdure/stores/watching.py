"""Who waits for commits: the iterators of ``SessionStore.changes``, and the thread that wakes them.

This process's commits wake at once; those of others are seen by looking. Only while somebody
watches does a thread look: every 20 ms, less often the longer nothing happens.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, suppress

from perdure.errors import StoreError, StoreUnavailable
from perdure.stores.access.process import running_loop

POLL_S = (0.020, 0.100)
_GROWTH = 1.2

Look = Callable[[float], object]
"""Given the seconds since the last look: what is another thing whenever somebody committed."""


class Changes:
    """The wake-ups of ``SessionStore.changes``: one is kept until it is taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_due = asyncio.Event()
        self._has_ended = False

    def __aiter__(self) -> Changes:
        return self

    async def __anext__(self) -> None:
        if not self._has_ended:
            await self._is_due.wait()
        if self._has_ended:
            raise StopAsyncIteration
        self._is_due.clear()

    def wake(self) -> None:
        """Continue the waiter, as there may have been a commit. Called on any thread."""
        if _current_loop() is self._loop:
            self._is_due.set()
            return
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._is_due.set)

    def end(self) -> None:
        """End the waiting. Called on any thread."""
        self._has_ended = True
        self.wake()


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def change(changes: AsyncIterator[None], address: str) -> None:
    """Wait for the next of the `changes` of the store at `address`.

    Raises: StoreUnavailable when it was closed.
    """
    try:
        await anext(changes)
    except StopAsyncIteration:
        raise StoreUnavailable(address, "it was closed") from None


class Watcher:
    """Wakes iterators after commits by anybody.

    `looking` is entered on the thread, again after each error, and gives the function that looks.
    """

    def __init__(self, looking: Callable[[], AbstractContextManager[Look]]) -> None:
        self._looking = looking
        self._lock = threading.Lock()
        self._watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def watch(self) -> Changes:
        """A new iterator, which sees every commit from now on. Called on a loop's thread."""
        changes = Changes(running_loop())
        with self._lock:
            self._watches.add(changes)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._poll, name="perdure-watch", daemon=True
                )
                self._thread.start()
            else:
                # The thread may have looked just before another process's commit that is already
                # over: better one wake-up for nothing than one too few.
                changes.wake()
        return changes

    def wake_all(self) -> None:
        """There was a commit. Called on any thread."""
        if self._thread is None:  # nobody watches; whoever begins to is woken by the first look
            return
        with self._lock:
            watches = list(self._watches)
        for changes in watches:
            changes.wake()

    def end(self) -> None:
        """End every iterator. Called on any thread."""
        for changes in list(self._watches):
            changes.end()

    def close(self) -> None:
        """Stop looking. Blocks until the thread has ended."""
        self._stop.set()
        thread = self._thread
        if thread is not None:
            thread.join()

    # -- on the watching thread

    def _poll(self) -> None:
        while not self._stop.is_set():
            try:
                with self._looking() as look:
                    self._poll_with(look)
                return
            except StoreError:  # looked again: a watch must not end unnoticed
                self._stop.wait(POLL_S[1])

    def _poll_with(self, look: Look) -> None:
        seen = look(0.0)
        self.wake_all()  # for what happened between `watch` and the first look
        wait_s = POLL_S[0]
        while not self._stop.wait(wait_s):
            if self._is_idle():
                return
            newer = look(wait_s)
            if newer == seen:
                wait_s = min(wait_s * _GROWTH, POLL_S[1])
                continue
            seen, wait_s = newer, POLL_S[0]
            self.wake_all()

    def _is_idle(self) -> bool:
        """Nobody watches any more: the thread ends, and the next watch starts another."""
        with self._lock:
            if self._watches:
                return False
            self._thread = None
            return True
