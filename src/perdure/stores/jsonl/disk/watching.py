"""Who waits for commits: woken by this handle at once, by everybody else soon.

While somebody watches, a thread looks at the feed, which every commit of ours appends to: every
20 ms, less often the longer nothing happens. Once a second it looks at the session files too, for
what a tool wrote that knows nothing of us.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress

from perdure.errors import StoreError

POLL_S = (0.020, 0.100)
FILES_POLL_S = 1.0
_GROWTH = 1.2


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
        """There may have been a commit. Called on any thread."""
        with suppress(RuntimeError):  # the loop was closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._is_due.set)

    def end(self) -> None:
        """Whoever waits stops waiting. Called on the loop's own thread."""
        self._has_ended = True
        self._is_due.set()


class Watcher:
    """Wakes iterators when what `feed` or `files` gives is another; `files` is asked less often."""

    def __init__(self, feed: Callable[[], object], files: Callable[[], object]) -> None:
        self._feed = feed
        self._files = files
        self._lock = threading.Lock()
        self._watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def watch(self) -> Changes:
        """A new iterator, which sees every commit from now on. Called on a loop's thread."""
        changes = Changes(asyncio.get_running_loop())
        with self._lock:
            self._watches.add(changes)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._poll, name="perdure-watch", daemon=True
                )
                self._thread.start()
            else:
                changes.wake()  # for what the thread has seen and this iterator has not
        return changes

    def wake_all(self) -> None:
        """There was a commit."""
        with self._lock:
            watches = list(self._watches)
        for changes in watches:
            changes.wake()

    def end(self) -> None:
        """End every iterator. Called on the loop's own thread."""
        for changes in list(self._watches):
            changes.end()

    def stop(self) -> None:
        """Stop looking. Blocks until the thread has ended."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    # -- on the watching thread

    def _poll(self) -> None:
        feed, files = self._look(self._feed), self._look(self._files)
        self.wake_all()  # for what happened between `watch` and the first look
        wait_s, waited_s = POLL_S[0], 0.0
        while not self._stop.wait(wait_s):
            if self._is_idle():
                return
            waited_s += wait_s
            newer = self._look(self._feed)
            newer_files = files
            if waited_s >= FILES_POLL_S:
                newer_files, waited_s = self._look(self._files), 0.0
            if newer == feed and newer_files == files:
                wait_s = min(wait_s * _GROWTH, POLL_S[1])
                continue
            feed, files, wait_s = newer, newer_files, POLL_S[0]
            self.wake_all()

    def _look(self, at: Callable[[], object]) -> object:
        try:
            return at()
        except StoreError:
            return None  # asked again: a watch must not end unnoticed

    def _is_idle(self) -> bool:
        """Nobody watches any more: the thread ends, and the next watch starts another."""
        with self._lock:
            if self._watches:
                return False
            self._thread = None
            return True
