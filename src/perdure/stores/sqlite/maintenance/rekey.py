"""Rekey, encrypt or decrypt a store by replacing its file in one step.

A converted copy of the store is written in the store's folder, checked and synced, and then renamed
to the store's name. After a kill at any moment the store is complete, with the old key or with the
new key. If a killed rekey leaves an encrypted copy, the next opening of the store removes the copy.
An unencrypted copy is removed as soon as its writer is dead (`rekey_copy`). During the rekey, this
process locks the store exclusively. The rekey gets the exclusive lock by leaving write-ahead mode,
which succeeds only if there are no other connections. The rekey keeps the exclusive lock until the
copy has the store's name. A process that waited for the lock finds that its open file is unlinked
and has no write-ahead log. SQLite refuses to write to an unlinked file without its log, and
`connections.connection` detects that the file was replaced.
"""

from __future__ import annotations

from contextlib import closing, nullcontext, suppress
from pathlib import Path

import apsw

from perdure.errors import (
    KeyMissing,
    StoreCorrupt,
    StoreInUse,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.connections import (
    Site,
    bare_connection,
    check_version,
    locate_site,
    refusal,
)
from perdure.stores.sqlite.database import is_attached
from perdure.stores.sqlite.maintenance.file_swap import (
    Report,
    addressing_connection,
    bytes_reported,
    put_in_place,
    take_alone,
)
from perdure.stores.sqlite.payload.cipher import copy_into
from perdure.stores.sqlite.rekey_copy import copy_held, guard_copy, remove_with_logs


def is_encrypted(path: Path) -> bool:
    """Whether the store at `path` needs a key. Raises: the errors of ``SqliteStore.open``."""
    try:
        locate_site(path, key=None)
    except KeyMissing:
        return True
    return False


def rekey(path: Path, key: StoreKey | None, new_key: StoreKey | None, report: Report) -> None:
    """Re-encrypt the store at `path` from `key` to `new_key`; a key of None means no encryption.

    Durable: the change is durable when the call returns; until then the old key opens the store.
    The call blocks.
    Raises: StoreInUse while any other connection has the store open. The call raises StoreFull if
    the disk has no room for a copy. The call also raises the errors of ``SqliteStore.open``. After
    any error the store is complete, and still has the old key, except if the disk failed in the
    very last step.
    """
    site = locate_site(path.resolve(), key=key)
    if not site.is_writable:
        raise StoreReadOnly(str(site.path))
    if is_attached(site.path):
        raise StoreInUse(str(site.path))
    db: Connection | None = None
    try:
        db = addressing_connection(site)
        with suppress(apsw.BusyError):  # the next step waits for the lock
            check_version(site, db)  # first, since the exclusive lock writes to it
        take_alone(db, site)
        check_version(site, db)
        guard = guard_copy(site.path) if new_key is None else nullcontext()
        with guard, copy_held(site.path) as copy:
            _copy(db, copy, new_key, report)
            put_in_place(copy, site.path)
    except apsw.Error as error:
        raise refusal(error, site, db.system_errno if db else 0) from error
    except OSError as error:
        place = str(error.filename or site.path)
        raise StoreUnavailable(place, error.strerror or type(error).__name__) from error
    finally:
        if db is not None:
            with suppress(
                apsw.Error
            ):  # the disk keeps failing; the relevant error was raised before
                db.close(force=True)


def _copy(db: Connection, copy: Path, new_key: StoreKey | None, report: Report) -> None:
    """Write the copy and check it."""
    with bytes_reported(db, copy, report):
        try:
            copy_into(db, copy, new_key)
            _check(db, copy, new_key)
        except BaseException:
            remove_with_logs(copy)
            raise


def _check(db: Connection, copy: Path, new_key: StoreKey | None) -> None:
    """Check that the copy opens with the new key, is sound, and has the store's number of rows.

    The check also creates the copy's write-ahead log. If SQLite created the log later, it would
    need a journal. A process that still has the old file open would mistake the new file's journal
    for the old file's journal, and delete it.
    """
    site = Site(copy, (0, 0), is_writable=True, key=new_key)
    with closing(bare_connection(site, b"")) as copied:
        sound = [row[0] for row in copied.execute("PRAGMA quick_check(1)")] == ["ok"]
        if not sound or _counts(copied) != _counts(db):
            raise StoreCorrupt(str(copy), "the copy is not what it was copied from")
        copied.pragma("journal_mode", "WAL")


def _counts(db: Connection) -> list[object]:
    """Return the number of rows in each table."""
    names = [row[0] for row in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    tables = sorted(name for name in names if not name.startswith("sqlite_"))
    return [
        (name, db.execute(f'SELECT count(*) FROM "{name}"').fetchone())  # noqa: S608 - names of tables, out of the schema itself
        for name in tables
    ]
