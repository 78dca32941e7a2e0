"""Map SQLite's errors to store errors in one table, so that no apsw error leaves the store.

Callers never see ``SQLITE_BUSY``, because a connection waits for other connections
(`connections.Patience`). If the wait times out, the error is `StoreLocked`.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import apsw
import msgspec

from perdure.errors import (
    InvalidEntry,
    PerdureError,
    QuotaExceeded,
    StoreCorrupt,
    StoreFull,
    StoreInUse,
    StoreLocked,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.stores.access.file_guard import OTHER_LIBRARY
from perdure.stores.access.lock_holder import holder_of_byte, others_with

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
QUOTA = "perdure quota "
"""Prefix of the message of a schema trigger that rejects a commit."""

_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})

Meaning = Callable[[str, str], PerdureError]


def _unavailable(reason: str) -> Meaning:
    return lambda store, _: StoreUnavailable(store, reason)


_NO_TRANSACTION = "no transaction is active"

_WRITE_LOCK_BYTE = 120
"""Byte of the file ``-shm`` that a writing process locks."""

_ALONE_BYTE = 2**30 + 2
"""Byte of the database that a process locks for a rekey, repair or restore."""

_LOCKED = (apsw.BusyError, apsw.LockedError, apsw.ProtocolError)


def _refusal_error(store: str, words: str) -> PerdureError:
    _, is_quota, what = words.partition(QUOTA)
    return QuotaExceeded(what) if is_quota else StoreUnavailable(store, words)


MEANINGS: tuple[tuple[type[apsw.Error], Meaning], ...] = (
    (apsw.CorruptError, StoreCorrupt),
    (apsw.NotADBError, StoreCorrupt),
    (apsw.FormatError, StoreCorrupt),
    (apsw.SQLError, StoreCorrupt),  # the program's SQL is fixed: the schema has changed
    (apsw.FullError, lambda store, _: StoreFull(store)),
    (apsw.ReadOnlyError, lambda store, _: StoreReadOnly(store)),
    (apsw.PermissionsError, lambda store, _: StoreReadOnly(store)),
    (apsw.ConstraintError, _refusal_error),
    (apsw.TooBigError, lambda _, __: InvalidEntry("it is larger than a database row can be")),
    (apsw.NoMemError, _unavailable("no memory is left")),
    (apsw.ConnectionClosedError, _unavailable("it is closed")),
)
"""Maps an SQLite error class to a function that makes the store error from the message."""


NO_VALUES = (UnicodeDecodeError, OverflowError, TypeError, msgspec.DecodeError)
"""Errors that are raised if a row is decoded that perdure did not write."""


def no_value(error: Exception, path: Path) -> StoreCorrupt:
    """Return the store error for `error` (one of `NO_VALUES`), raised while reading `path`."""
    return StoreCorrupt(str(path), f"a value in it is none ({error})")


def meaning_of(
    error: apsw.Error, path: Path, system_errno: int = 0, waited_s: float | None = None
) -> PerdureError:
    """Map `error`, raised while using the file `path`, to a store error.

    `system_errno` is the operating system's last error on the connection. `waited_s` is the
    connection's longest wait for a lock.
    """
    store = str(path)
    if isinstance(error, apsw.IOError | apsw.CantOpenError):
        if system_errno in _NO_SPACE:
            return StoreFull(store)
        if system_errno in _NO_ACCESS:
            return StoreReadOnly(store)
    if isinstance(error, _LOCKED):
        return _lock_error(path, waited_s)
    if isinstance(error, apsw.SQLError) and _NO_TRANSACTION in str(error):
        return StoreUnavailable(store, f"its locks were lost ({error}); {OTHER_LIBRARY}")
    for kind, meaning in MEANINGS:
        if isinstance(error, kind):
            return meaning(store, str(error))
    return StoreUnavailable(store, str(error) or type(error).__name__)


def in_use(path: Path) -> StoreInUse:
    """Return the error for a store that other connections have open.

    The error names the processes that have the store open.
    """
    return StoreInUse(str(path), others_with(path, path.with_name(path.name + "-shm")))


def _lock_error(path: Path, waited_s: float | None) -> StoreLocked:
    """Return the error for a locked store; the error names the process that holds the lock."""
    shared = path.with_name(path.name + "-shm")
    holder = holder_of_byte(shared, _WRITE_LOCK_BYTE) or holder_of_byte(path, _ALONE_BYTE)
    if holder is None:
        held = "another connection kept it locked for too long"
        return StoreLocked(str(path), held, "try again", waited_s)
    held = f"{holder} has kept it locked for too long"
    return StoreLocked(str(path), held, "continue or end that process, then try again", waited_s)
