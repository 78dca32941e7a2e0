"""The only thread of a handle that accesses the folder.

While a call waits for a lock of another process, the thread runs other calls. A call that waits for
a lock is retried until it times out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from perdure.errors import StoreUnavailable
from perdure.stores.access.file_guard import FileGuard
from perdure.stores.access.process import OwnProcess, running_loop
from perdure.stores.jsonl.disk.folder import Folder
from perdure.stores.jsonl.disk.locks import LockBusy

LOCK_POLL_S = 0.02
"""Pause between two attempts of a call to get a held lock; meanwhile other calls use the thread."""

T = TypeVar("T")


class FolderThread:
    """Runs the calls of one handle one at a time, for callers in any event loop."""

    def __init__(self, folder: Folder, address: str) -> None:
        self._path, self._locks = folder.path, folder.locks
        self._address = address
        self._process = OwnProcess(address)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="perdure-jsonl")
        self._is_ended = False
        self._guard: FileGuard | None = None

    def begin(self) -> None:
        """Record the identity of the folder.

        Later calls fail if the folder is removed or replaced.
        """
        self._guard = FileGuard(self._path, is_folder=True)

    def _work(self, work: Callable[[], T]) -> T:
        if self._guard is not None:
            self._guard.check()
        return self._locks.without_waiting(work)

    def check_usable(self) -> None:
        """Check that the caller can use the thread.

        Raises: StoreUnavailable in a forked child process, or after the thread has ended.
        """
        self._process.check()
        if self._is_ended:
            raise StoreUnavailable(self._address, "it was closed; open it again")

    async def run(self, work: Callable[[], T]) -> T:
        """Return the result of `work`, which acquires its locks before it changes anything.

        Raises: StoreUnavailable, which names the lock's holder, if another process holds a lock for
        longer than the folder's time limit; also the errors of `work`.
        """
        loop = running_loop()
        until = loop.time() + self._locks.timeout_s
        while True:
            self.check_usable()
            try:
                return await loop.run_in_executor(self._pool, self._work, work)
            except LockBusy as busy:
                if loop.time() >= until:
                    raise self._locks.unavailable(busy) from None
            await asyncio.sleep(LOCK_POLL_S)

    def end(self) -> bool:
        """Accept no more work.

        Returns False if the thread had already ended, or in a forked child.
        """
        if self._is_ended or not self._process.is_this:
            return False
        self._is_ended = True
        return True

    def join(self) -> None:
        """Wait for the running work. The call blocks."""
        self._pool.shutdown(wait=True)
