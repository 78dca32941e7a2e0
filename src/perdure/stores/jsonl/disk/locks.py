"""The locks of a folder: one process locks a file, and others wait for the lock up to a time limit.

Each handle accesses the folder on one thread. A call that finds a lock held by another process
yields the thread and is retried later. A call that has already changed something blocks the thread
until it gets the lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, TypeVar

from perdure.errors import StoreLocked
from perdure.stores.access.lock_holder import holder_of, mark
from perdure.stores.regular_files import open_regular

QUICK_WAIT_S = 0.02
"""How long a call blocks on a lock before it yields the thread to other calls."""

_LOOK_S = (0.0001, 0.005)

T = TypeVar("T")


class LockBusy(Exception):
    """Another process holds a lock; the call changed nothing and can be retried."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


class FolderLocks:
    """The lock files in the folder `path` of the store `store`.

    `fail` raises the store error for an error of the operating system. Units: `timeout_s` is the
    longest wait in seconds.
    """

    def __init__(
        self, store: Path, path: Path, fail: Callable[[OSError], NoReturn], timeout_s: float
    ) -> None:
        self.timeout_s = timeout_s
        self._store = store
        self._path = path
        self._fail = fail
        self._is_waiting = True

    def try_lock(self, name: str) -> int | None:
        """Acquire the lock `name`; closing the returned file releases it.

        Returns None if the lock is held.
        """
        file = self._open_file(name)
        is_mine = False
        try:
            is_mine = self._is_locked(file, fcntl.LOCK_EX, 0)
        finally:
            if not is_mine:
                os.close(file)
        if not is_mine:
            return None
        mark(file)
        return file

    @contextmanager
    def hold_lock(self, name: str, *, is_shared: bool, wait_s: float | None) -> Generator[None]:
        """Hold the lock `name` during the block; other processes wait for the lock.

        With `is_shared`, other shared holders can hold the lock at the same time. The operating
        system releases the lock when this process ends in any way.
        Raises: LockBusy if another process still holds the lock after `wait_s`. If `wait_s` is
        None, a call inside `without_waiting` raises LockBusy after a short wait. Any other call
        waits for `timeout_s`, and then raises StoreLocked, which names the holder.
        """
        file = self._open_file(name)
        try:
            limit_s = wait_s
            if limit_s is None:
                limit_s = self.timeout_s if self._is_waiting else QUICK_WAIT_S
            how = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
            if not self._is_locked(file, how, limit_s):
                busy = LockBusy(self._path / name)
                raise self.unavailable(busy) if wait_s is None and self._is_waiting else busy
            mark(file)
            try:
                yield
            finally:
                fcntl.flock(file, fcntl.LOCK_UN)  # a child forked meanwhile has the file open, too
        finally:
            os.close(file)

    def without_waiting(self, work: Callable[[], T]) -> T:
        """Run `work`, which acquires its locks before it changes anything.

        Raises: LockBusy if a lock is not free after a short wait; also the errors of `work`.
        """
        self._is_waiting = False
        try:
            return work()
        finally:
            self._is_waiting = True

    @contextmanager
    def waiting(self) -> Generator[None]:
        """Wait for locks during the block, because its work has begun and cannot be repeated."""
        before, self._is_waiting = self._is_waiting, True
        try:
            yield
        finally:
            self._is_waiting = before

    def unavailable(self, busy: LockBusy) -> StoreLocked:
        """Return the error for a lock that was busy for `timeout_s`."""
        return StoreLocked(
            str(self._store),
            f"{holder_of(busy.path)} holds a lock that this call needs",
            "continue or end that process, then try again",
            self.timeout_s,
        )

    def _open_file(self, name: str) -> int:
        try:
            return open_regular(self._path / name, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            self._fail(error)

    def _is_locked(self, file: int, how: int, limit_s: float) -> bool:
        """Lock `file`; return False if another process held it for `limit_s`."""
        pause_s, until = _LOOK_S[0], time.monotonic() + limit_s
        while True:
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno != errno.EWOULDBLOCK:
                    self._fail(error)
            else:
                return True
            if time.monotonic() >= until:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, _LOOK_S[1])
