"""Copying the write-ahead log into the database, on a thread of its own.

The writer goes on meanwhile; only a log that has grown for long keeps it waiting, for a moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue

import apsw

from perdure.errors import StoreError
from perdure.stores.sqlite.opening import Patience
from perdure.stores.sqlite.rows import Connection

CHECKPOINT_PAGES = 1_000
"""A log of this many pages is copied into the database: 4 MB."""

RESTART_PAGES = 4_000
"""From this size on, 16 MB, the checkpoint keeps the writer waiting so that the log begins anew."""

RESTART_LIMIT_S = 0.05
"""How long it may do so while somebody reads."""


class Checkpointer:
    """Copies the write-ahead log into the database beside the writer, which never waits for it."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._due: SimpleQueue[int | None] = SimpleQueue()
        self._restart_from = RESTART_PAGES
        self._thread: threading.Thread | None = None

    def wake(self, pages: int) -> None:
        """The log holds `pages` pages. Called on the writer's thread only."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="perdure-checkpoint", daemon=True
            )
            self._thread.start()
        if self._due.empty():
            self._due.put(pages)

    def close(self) -> None:
        """Stop. Blocks until a checkpoint under way has ended."""
        if self._thread is not None:
            self._due.put(None)
            self._thread.join()

    def _run(self) -> None:
        db: Connection | None = None
        while (pages := self._due.get()) is not None:
            with suppress(apsw.Error, StoreError):  # the log stays, and the next commit asks again
                if db is None:
                    db = self._connect()
                    db.set_busy_handler(Patience(b"", RESTART_LIMIT_S))
                self._checkpoint(db, pages)
        if db is not None:
            db.close()

    def _checkpoint(self, db: Connection, pages: int) -> None:
        if pages < self._restart_from:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            return
        self._restart_from = pages + RESTART_PAGES // 2  # if somebody reads on, not at every commit
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self._restart_from = RESTART_PAGES
