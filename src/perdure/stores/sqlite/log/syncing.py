"""The ``fsync`` of the write-ahead log: once the file is unlocked, not before, as SQLite has it.

A commit is written at ``synchronous = NORMAL``, which keeps every power cut from tearing anything:
what is left of the log is always a beginning of it. Whoever promises more syncs the log then, on
the file that SQLite itself has open; several processes do so at the same time, and none waits for
the disk of another while it holds the lock. What is seen meanwhile could still be lost with the
power: so nobody is told of a commit, whoever made it, before a sync that came after it.
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


class LogSync:
    """Syncs the write-ahead log as `db` has it open; on one thread, while no statement runs."""

    def __init__(self, db: LogConnection) -> None:
        self._db = db
        self._synced: int | None = None

    def catch_up(self) -> None:
        """Let what the last transaction of the connection saw reach the disk, if it was new to it.

        Raises: apsw.IOError.
        """
        seen = self._db.data_version()
        if seen != self._synced:
            self.sync()
            self._synced = seen

    def sync(self) -> None:
        """Let all that was committed reach the disk. Blocks; other threads of Python go on.

        Raises: apsw.IOError.
        """
        file = ctypes.c_void_p()
        self._db.file_control("main", apsw.SQLITE_FCNTL_JOURNAL_POINTER, ctypes.addressof(file))
        if file.value is None:
            raise apsw.IOError("SQLite does not say which file its write-ahead log is")
        methods: Any = _File.from_address(file.value).methods.contents
        try:
            code: int = methods.sync(file, apsw.SQLITE_SYNC_FULL)
        except SystemError as error:  # a file layer in Python, which raised
            raise apsw.IOError("the write-ahead log could not be synced") from error
        if code != apsw.SQLITE_OK:
            raise apsw.IOError(f"the write-ahead log could not be synced ({code})")
