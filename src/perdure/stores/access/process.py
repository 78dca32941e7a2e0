"""Restrict a store to the process that opened it, and to event loops of asyncio."""

from __future__ import annotations

import asyncio
import os

from perdure.errors import NotAsyncio, StoreUnavailable

FORKED = "it was opened before a fork; open it again"


class OwnProcess:
    """The process that opened the store at `address`. A forked child is another process."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pid = os.getpid()

    @property
    def is_this(self) -> bool:
        """Return whether the current process opened the store."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Check that this process opened the store.

        Raises: StoreUnavailable in a forked child, which lacks the store's threads and locks.
        """
        if os.getpid() != self._pid:
            raise StoreUnavailable(self._address, FORKED)


def running_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop. Raises: NotAsyncio under trio, curio, or no loop at all."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise NotAsyncio from None
