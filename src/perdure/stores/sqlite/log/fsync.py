"""The ``fsync`` of the write-ahead log: once the file is unlocked, not before, as SQLite has it.

A commit is written at ``synchronous = NORMAL``, which keeps every power cut from tearing anything:
what is left of the log is always a beginning of it. Whoever promises more syncs the log then, on
the file that SQLite itself has open; several processes do so at the same time, and none waits for
the disk of another while it holds the lock. What is seen meanwhile could still be lost with the
power: so nobody is told of a commit, whoever made it, before a sync that came after it. After a
sync that failed nobody is told of anything before the log was begun anew.
"""

from __future__ import annotations

import ctypes
from typing import Any

import apsw

from perdure.stores.sqlite.rows import LogConnection

_POINTERS = ("xClose", "xRead", "xWrite", "xTruncate")


class _Methods(ctypes.Structure):
    """The beginning of ``sqlite3_io_methods``, part of SQLite's stable interface."""

    _fields_ = (
        ("version", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("sync", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)),
    )


class _File(ctypes.Structure):
    """``sqlite3_file``."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class LogDoubt:
    """Whether a sync of the file's log failed; one for all connections of a process."""

    def __init__(self) -> None:
        self.is_cast = False


class LogSync:
    """Syncs the write-ahead log as `db` has it open; on one thread, while no statement runs."""

    def __init__(self, db: LogConnection, doubt: LogDoubt) -> None:
        self._db = db
        self._doubt = doubt
        self._synced: int | None = None
        self._file = ctypes.c_void_p()
        self._known: int | None = None
        self._call: Any = None

    def catch_up(self) -> None:
        """Let what the last transaction of the connection saw reach the disk, if it was new to it.

        Raises: apsw.BusyError, apsw.IOError.
        """
        seen = self._db.data_version()
        if seen != self._synced or self._doubt.is_cast:
            self.sync()
            self._synced = seen

    def sync(self) -> None:
        """Let all that was committed reach the disk. Blocks; other threads of Python go on.

        Raises: apsw.BusyError, apsw.IOError.
        """
        if self._doubt.is_cast:
            self.begin_anew()
            return
        try:
            self._sync()
        except apsw.IOError:
            self._doubt.is_cast = True
            raise

    def begin_anew(self) -> None:
        """Begin the log anew: a disk that failed to sync it may say next time that it did.

        Raises: apsw.BusyError, apsw.IOError.
        """
        self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._doubt.is_cast = False

    def _sync(self) -> None:
        file = self._file
        file.value = None
        self._db.file_control("main", apsw.SQLITE_FCNTL_JOURNAL_POINTER, ctypes.addressof(file))
        if file.value is None:
            raise apsw.IOError("SQLite does not say which file its write-ahead log is")
        if file.value != self._known:
            self._call = _File.from_address(file.value).methods.contents.sync
            self._known = file.value
        try:
            code: int = self._call(file, apsw.SQLITE_SYNC_FULL)
        except SystemError as error:  # a file layer in Python, which raised
            raise apsw.IOError("the write-ahead log could not be synced") from error
        if code != apsw.SQLITE_OK:
            raise apsw.IOError(f"the write-ahead log could not be synced ({code})")
