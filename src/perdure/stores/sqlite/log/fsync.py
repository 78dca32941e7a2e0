"""Run the ``fsync`` of the write-ahead log after the file is unlocked.

A commit is written at ``synchronous = NORMAL``. After a power cut, the newest commits may be
missing from the log, but the log contains no partial commit. For durability "full", the write-ahead
log is synced after the commit, through the file that SQLite itself has open. Several processes can
sync concurrently. The write lock is released before a sync, so no process waits for another
process's disk write. Data that is read before the sync could still be lost in a power cut. So no
call returns the data of a commit, of any process, before a sync that covers this commit. After a
failed sync no call returns until the log has restarted.
"""

from __future__ import annotations

import ctypes
from typing import Any

import apsw

from perdure.stores.access.sqlite_connection import LogConnection

_POINTERS = ("xClose", "xRead", "xWrite", "xTruncate")


class _Methods(ctypes.Structure):
    """The beginning of ``sqlite3_io_methods``, part of SQLite's stable interface."""

    _fields_ = (
        ("version", ctypes.c_int),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("sync", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)),
        (
            "size",
            ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)),
        ),
    )


class _File(ctypes.Structure):
    """The beginning of ``sqlite3_file``, an open file of SQLite."""

    _fields_ = (("methods", ctypes.POINTER(_Methods)),)


class LogDoubt:
    """Records whether a sync of the file's log failed, for all connections of a process."""

    def __init__(self) -> None:
        self.is_cast = False


class LogSync:
    """Syncs the write-ahead log that `db` has open.

    Only one thread may use a `LogSync`, and only while no statement runs.
    """

    def __init__(self, db: LogConnection, doubt: LogDoubt) -> None:
        self._db = db
        self._doubt = doubt
        self._synced: int | None = None
        self._file = ctypes.c_void_p()
        self._known: int | None = None
        self._call: Any = None
        self._size: Any = None

    def catch_up(self) -> None:
        """Sync the commits that the connection's last transaction saw for the first time.

        An empty log needs no sync: a checkpoint has synced the database before it emptied the log.
        Raises: apsw.BusyError, apsw.IOError.
        """
        seen = self._db.data_version()
        if self._doubt.is_cast or (seen != self._synced and not self._is_empty()):
            self.sync()
        self._synced = seen

    def sync(self) -> None:
        """Sync all commits. The call blocks, but other Python threads continue.

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
        """Restart the log, because after a failed sync a disk may falsely report success.

        Raises: apsw.BusyError, apsw.IOError.
        """
        self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        self._doubt.is_cast = False

    def _sync(self) -> None:
        self._find()
        try:
            code: int = self._call(self._file, apsw.SQLITE_SYNC_FULL)
        except SystemError as error:  # an exception of a file layer written in Python
            raise apsw.IOError("the write-ahead log could not be synced") from error
        if code != apsw.SQLITE_OK:
            raise apsw.IOError(f"the write-ahead log could not be synced ({code})")

    def _is_empty(self) -> bool:
        self._find()
        size = ctypes.c_int64(-1)
        return self._size(self._file, ctypes.byref(size)) == apsw.SQLITE_OK and size.value == 0

    def _find(self) -> None:
        """Find the log that SQLite has open, and the functions of its file layer."""
        file = self._file
        file.value = None
        self._db.file_control("main", apsw.SQLITE_FCNTL_JOURNAL_POINTER, ctypes.addressof(file))
        if file.value is None:
            raise apsw.IOError("SQLite does not say which file its write-ahead log is")
        if file.value != self._known:
            methods = _File.from_address(file.value).methods.contents
            self._call, self._size = methods.sync, methods.size
            self._known = file.value
