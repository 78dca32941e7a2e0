"""Replace a store's file in one step, under an exclusive lock, and preserve the old file.

A database and its write-ahead log belong together, because SQLite would replay a leftover log into
another database. So the write-ahead log is removed before another file gets the store's name.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import apsw

from perdure.errors import StoreExists, StoreInUse, StoreUnavailable
from perdure.stores.access.sqlite_connection import Connection, hardened
from perdure.stores.fsync import sync_file, sync_folder
from perdure.stores.sqlite.connections import Patience, Site, identity_of
from perdure.stores.sqlite.database import is_attached
from perdure.stores.sqlite.faults import in_use
from perdure.stores.sqlite.payload.cipher import unlock
from perdure.stores.sqlite.rekey_copy import BESIDE

ALONE_LIMIT_S = 2.0
"""How long to wait for other processes to close the store."""

ALONE_PAUSE_S = (0.005, 0.02)
"""Shortest and longest pause between two attempts: shorter ones would use a third of a core."""

PROGRESS_STEPS = 1_000
"""Number of SQLite instructions between two progress reports."""

Report = Callable[[int, int], None]
"""Called with the written and the total number of bytes."""


def addressing_connection(site: Site) -> Connection:
    """Open a connection that accepts URIs.

    An encrypted copy is created with a URI that contains the key.
    """
    flags = apsw.SQLITE_OPEN_READWRITE if site.is_writable else apsw.SQLITE_OPEN_READONLY
    address = site.path.absolute().as_uri() + ("?immutable=1" if site.is_immutable else "")
    db = hardened(address, flags | apsw.SQLITE_OPEN_URI)
    unlock(db, site.key)
    db.pragma("temp_store", "MEMORY")
    return db


@contextmanager
def bytes_reported(db: Connection, target: Path, report: Report) -> Generator[None]:
    """Report the progress of the block, which copies the store of `db` into `target`."""
    total = db.pragma("page_count") * db.pragma("page_size")

    def tell() -> bool:
        report(min(target.stat().st_size, total), total)
        return False

    db.set_progress_handler(tell, PROGRESS_STEPS)
    try:
        yield
    finally:
        db.set_progress_handler(None, 0)
    report(total, total)


def take_alone(db: Connection, site: Site) -> None:
    """Lock the store exclusively until `db` is closed; merge and remove its write-ahead log.

    Raises: StoreInUse while another connection has the store open; apsw.Error.
    """
    patience = Patience(b"", ALONE_LIMIT_S, ALONE_PAUSE_S)
    db.pragma("locking_mode", "EXCLUSIVE")
    for attempt in count():
        try:
            mode = db.pragma("journal_mode", "DELETE")
            db.execute("BEGIN EXCLUSIVE; COMMIT")
        except apsw.BusyError as error:
            if not patience(attempt):
                raise in_use(site.path) from error
        else:
            if mode != "delete" or identity_of(site.path) != site.identity:
                raise StoreInUse(str(site.path))
            return


def new_file(path: Path) -> None:
    """Create the empty file `path`, readable only by its owner. Raises: FileExistsError."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR))


def put_in_place(new: Path, path: Path) -> None:
    """Rename `new`, which has no log, to `path` in one step, after removing old logs at `path`.

    Durable: the renamed file is on the disk when the call returns.
    """
    sync_file(new)
    for name in BESIDE:
        path.with_name(path.name + name).unlink(missing_ok=True)
    sync_folder(path.parent)
    new.replace(path)
    sync_folder(path.parent)


def put_where_nothing_is(new: Path, path: Path) -> None:
    """Create `path` as a hard link to the file `new`; fail if `path` exists.

    `new` must not have a write-ahead log.

    Durable: the link is on the disk when the call returns.
    Raises: StoreExists.
    """
    sync_file(new)
    for name in BESIDE:  # of a store without its database; SQLite would replay it into the new one
        if path.with_name(path.name + name).exists():
            raise StoreExists(str(path) + name)
    try:
        os.link(new, path)
    except FileExistsError as error:
        raise StoreExists(str(path)) from error
    new.unlink()
    sync_folder(path.parent)


def exchange(new: Path, path: Path, aside: Path, *, site: Site | None) -> None:
    """Rename `new` to `path`; move the previous file and its log to the folder `aside`.

    `site` is the previous store. `site` is None if SQLite cannot open the previous store, or if the
    caller has locked the previous store. If `site` is given, the function locks the previous store
    exclusively during the exchange. After a kill at any moment, the previous store is complete,
    either under its name or in `aside`.
    Durable: the exchange is on the disk when the call returns.
    Raises: StoreInUse, StoreUnavailable.
    """
    if is_attached(path):
        raise StoreInUse(str(path))
    db: Connection | None = None
    try:
        if site is not None:
            db = addressing_connection(site)
            with suppress(apsw.CorruptError, apsw.NotADBError, apsw.IOError):
                take_alone(db, site)
        _set_aside(path, aside)
        put_in_place(new, path)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or type(error).__name__) from error
    finally:
        if db is not None:
            with suppress(apsw.Error):  # its file has lost its name
                db.close(force=True)


def _set_aside(path: Path, aside: Path) -> None:
    """Add the store at `path` to the folder `aside`, as a hard link with copies of its logs."""
    aside.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = aside / path.name
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    for name in ("-wal", "-journal"):
        log = path.with_name(path.name + name)
        if log.exists():
            shutil.copy2(log, aside / log.name)
            sync_file(aside / log.name)
    sync_folder(aside)
    sync_folder(aside.parent)


def free_name(path: Path, word: str) -> Path:
    """Return the first unused name next to `path`: ``NAME-word``, ``NAME-word-2``, ..."""
    for number in count(1):
        end = "" if number == 1 else f"-{number}"
        free = path.with_name(f"{path.name}-{word}{end}")
        if not free.exists():
            return free
    raise AssertionError("numbers do not end")
