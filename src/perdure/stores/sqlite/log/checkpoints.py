"""Copy the write-ahead log into the database (checkpoint), on a separate thread.

The writer continues during a checkpoint, so a checkpoint is rarely complete, and the log can
restart only after a complete checkpoint. Retrying an incomplete checkpoint immediately would cost
two ``fsync`` per commit. Checkpoints run from time to time, and the log may grow between them. If
the log grows too large, a checkpoint blocks all writers briefly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Literal

import apsw

from perdure.errors import StoreError
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.sqlite.connections import Patience

CHECKPOINT_PAGES = 1_000
"""A checkpoint runs each time the log has grown by this many pages (4 MB)."""

RESTART_PAGES = 4_000
"""From this log size on (16 MB), a checkpoint blocks the writer so that the log restarts."""

RESTART_LIMIT_S = 0.05
"""How long a checkpoint that blocks the writer may wait for active readers."""


_Call = Literal["copy", "stop"]


class Checkpointer:
    """Checkpoints the write-ahead log.

    A checkpoint blocks the writer only if the log has `RESTART_PAGES` pages or more.
    """

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._due: SimpleQueue[_Call] = SimpleQueue()
        self._restart_from = RESTART_PAGES
        self._pages = 0
        self._copy_from = CHECKPOINT_PAGES
        self._thread: threading.Thread | None = None

    def grown(self, pages: int) -> None:
        """Report that the log has `pages` pages. Call this method only on the writer's thread."""
        if pages < self._pages:  # the log has restarted
            self._copy_from = CHECKPOINT_PAGES
        self._pages = pages
        if pages >= min(self._copy_from, self._restart_from) and self._due.empty():
            self._copy_from = pages + CHECKPOINT_PAGES
            self._wake()

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="perdure-checkpoint", daemon=True
            )
            self._thread.start()
        self._due.put("copy")

    def close(self) -> None:
        """Stop the thread. The call blocks until a running checkpoint has ended."""
        if self._thread is not None:
            self._due.put("stop")
            self._thread.join()

    def _run(self) -> None:
        db: Connection | None = None
        while self._due.get() == "copy":
            with suppress(apsw.Error, StoreError):  # the log stays, and a later commit retries
                if db is None:
                    db = self._connect()
                    db.set_busy_handler(Patience(b"", RESTART_LIMIT_S))
                self._checkpoint(db)
        if db is not None:
            db.close()

    def _checkpoint(self, db: Connection) -> None:
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        pages = self._pages
        if pages < self._restart_from:
            return
        # Nearly all is copied by now, so the file is locked only briefly.
        self._restart_from = pages + CHECKPOINT_PAGES  # if a reader blocks it, not at every commit
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        self._restart_from = RESTART_PAGES
