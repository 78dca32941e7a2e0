"""Wake-ups after commits: the iterators of ``SessionStore.changes`` and their watcher thread.

A commit wakes the iterators of its streams and of the whole namespace; other iterators cost
nothing. Commits of this process wake the iterators at once. A thread finds commits of other
processes. The thread polls only while an iterator waits. The thread polls every 20 ms, and less
often if there has been no commit for a while.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import AbstractContextManager, suppress

from perdure.errors import StoreError, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.stores.access.process import running_loop

POLL_S = (0.020, 0.100)
_GROWTH = 1.2

Place = tuple[str, StreamId]
"""A namespace and the id of a stream in it."""

Look = Callable[[float], "Collection[Place] | None"]
"""A function that takes the seconds since its last call, and returns streams changed since then.

The result can contain unchanged streams. None means that any stream may have changed.
"""


class Changes:
    """The iterator that ``SessionStore.changes`` returns.

    If a commit comes while no task waits, the next wait returns immediately.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, group: _Group | None = None) -> None:
        self._loop = loop
        self._group = group  # the group lasts as long as one of its iterators
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
        """Wake the waiting task, because there may be a commit. Thread-safe."""
        if _current_loop() is self._loop:
            self._is_due.set()
            return
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            self._loop.call_soon_threadsafe(self._is_due.set)

    def end(self) -> None:
        """End the iterator. Thread-safe."""
        self._has_ended = True
        self.wake()


def _current_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def change(changes: AsyncIterator[None], address: str) -> None:
    """Wait for the next of the `changes` of the store at `address`.

    Raises: StoreUnavailable if the store was closed.
    """
    try:
        await anext(changes)
    except StopAsyncIteration:
        raise StoreUnavailable(address, "it was closed; open it again") from None


class _Group:
    """The iterators that wait for one stream, or for a whole namespace."""

    def __init__(self) -> None:
        self.waiting: weakref.WeakSet[Changes] = weakref.WeakSet()


class Watches:
    """The waiting iterators by namespace and stream; the key None stands for the whole namespace.

    All methods are thread-safe, except `add`, which must be called on the thread of a loop.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._groups: weakref.WeakValueDictionary[tuple[str, StreamId | None], _Group] = (
            weakref.WeakValueDictionary()
        )

    def __bool__(self) -> bool:
        return bool(self._groups)

    def add(self, namespace: str, stream: StreamId | None = None) -> Changes:
        """Return a new iterator, which sees every commit from now on."""
        with self._lock:
            group = self._groups.get((namespace, stream))
            if group is None:
                group = self._groups[namespace, stream] = _Group()
            changes = Changes(running_loop(), group)
            group.waiting.add(changes)
        return changes

    def wake(self, places: Iterable[Place]) -> None:
        """Wake the iterators of the streams in `places`, and of the streams' namespaces."""
        keys: dict[tuple[str, StreamId | None], None] = {}
        for namespace, stream in places:
            keys[namespace, stream] = keys[namespace, None] = None
        with self._lock:
            groups = [group for key in keys if (group := self._groups.get(key)) is not None]
            woken = [changes for group in groups for changes in group.waiting]
        for changes in woken:
            changes.wake()

    def wake_namespace(self, namespace: str) -> None:
        """Wake the iterators of the whole namespace, not those of one stream."""
        group = self._groups.get((namespace, None))
        for changes in () if group is None else tuple(group.waiting):
            changes.wake()

    def wake_all(self) -> None:
        """Wake every iterator."""
        for changes in self._all():
            changes.wake()

    def end(self) -> None:
        """End every iterator."""
        for changes in self._all():
            changes.end()

    def _all(self) -> list[Changes]:
        with self._lock:
            return [changes for group in self._groups.values() for changes in group.waiting]


class Watcher:
    """Wakes the iterators after commits of this process and of other processes.

    `looking` returns a context manager for the thread. Entering the context manager returns the
    function that polls. After each error, the thread calls `looking` again.
    """

    def __init__(self, looking: Callable[[], AbstractContextManager[Look]]) -> None:
        self._looking = looking
        self._lock = threading.Lock()
        self._watches = Watches()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()

    def watch(self, namespace: str, stream: StreamId | None = None) -> Changes:
        """Return a new iterator over the commits to `stream`.

        `stream` None means any stream of the namespace. The iterator yields at its beginning, and
        sees every commit from now on. Call this method on a loop's thread.
        """
        with self._lock:
            changes = self._watches.add(namespace, stream)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._poll, name="perdure-watch", daemon=True
                )
                self._thread.start()
        # The thread may have polled just before a commit of another process that has ended by now,
        # or cannot poll: a spurious wake-up is better than a missed one.
        changes.wake()
        return changes

    def wake(self, places: Iterable[Place]) -> None:
        """Wake the iterators after a commit of this process to `places`. Thread-safe."""
        if self._thread is not None:  # without a thread nothing waits; a new watch polls first
            self._watches.wake(places)

    def wake_all(self) -> None:
        """Wake every iterator, because any stream may have changed. Thread-safe."""
        with self._lock:  # an iterator being added is registered first
            if self._thread is not None:
                self._watches.wake_all()

    def end(self) -> None:
        """End every iterator. Thread-safe."""
        self._watches.end()

    def close(self) -> None:
        """Stop polling. The call blocks until the thread has ended."""
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
            except StoreError:  # retried: a watch must not end silently
                self.wake_all()  # the next read of the waiting task reports the error
                self._stop.wait(POLL_S[1])

    def _poll_with(self, look: Look) -> None:
        look(0.0)
        self.wake_all()  # for commits between `watch` and the first poll
        wait_s = POLL_S[0]
        while not self._stop.wait(wait_s):
            if self._is_idle():
                return
            places = look(wait_s)
            if places is None:
                self.wake_all()
            elif not places:
                wait_s = min(wait_s * _GROWTH, POLL_S[1])
                continue
            else:
                self.wake(places)
            wait_s = POLL_S[0]

    def _is_idle(self) -> bool:
        """Return True if no iterator waits.

        Without a waiting iterator, the thread ends, and the next watch starts a new thread.
        """
        with self._lock:
            if self._watches:
                return False
            self._thread = None
            return True
