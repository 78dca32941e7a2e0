"""Open connections for a path: inspect the file, check write access, configure connections.

A file that is not a store, is damaged, or has a newer schema remains byte-identical, because the
file's header is read before SQLite can change the file. Until the schema version is known,
connections do not checkpoint the write-ahead log when they are closed. The header is read through
SQLite's own file layer, because closing the file in any other way releases this process's locks on
the file.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.errors import (
    KeyMissing,
    KeyWrong,
    NotAStore,
    PerdureError,
    StoreCorrupt,
    StoreNotEncrypted,
    StoreReadOnly,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.sqlite_connection import Connection, hardened
from perdure.stores.key import StoreKey
from perdure.stores.regular_files import NotRegular, status_of
from perdure.stores.sqlite.faults import meaning_of
from perdure.stores.sqlite.migrate import (
    APPLICATION_ID,
    UNRELEASED,
    first_version,
    latest_version,
    migrate,
    version_of,
)
from perdure.stores.sqlite.payload.cipher import looks_encrypted, unlock
from perdure.stores.sqlite.rekey_copy import BESIDE, remove_dead_copy
from perdure.stores.sqlite.schema import check_schema, create_schema

if TYPE_CHECKING:
    import random
else:
    random = Later("random")

CACHE_KIB = 4_096
LOG_LIMIT_BYTES = 16 * 2**20
CLOSING_LIMIT_S = 2.0
"""How long closing a store waits for a lock of another process."""

BUSY_WAIT_S = (0.00003, 0.0002)
"""Shortest and longest sleep during a wait for a lock.

Longer sleeps leave the file idle (decision 11).
"""

LOOKS = 20
"""Maximum number of checks of a changing file; creating a store writes the file fewer times."""

LOG_FILES = ("-wal", "-shm")
"""Suffixes of the files that SQLite keeps beside an open database."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_USES_LOG = bytes((2, 2))
_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
_NO_DATABASE = "it is not an SQLite database, nor one that perdure encrypted"
_UNREADABLE = "this user may not read it; check the owner and permissions of file and folder"
_FOREIGN = "it is the database of another program"


class LockWait:
    """The longest time that the connections of one file wait for other processes.

    Units: `limit_s` is in seconds.
    """

    def __init__(self, limit_s: float = LOCK_TIMEOUT_S) -> None:
        self.limit_s = limit_s

    def shorten(self, limit_s: float) -> None:
        """From now on, wait no longer than `limit_s`."""
        self.limit_s = min(self.limit_s, limit_s)


class Site(msgspec.Struct, frozen=True):
    """A database file and its properties when it was inspected.

    `is_immutable` means that no process can write the file or create its lock files.

    `identity` distinguishes the file from a later file with the same name. All connections of a
    site share `wait`. If `is_copied` is True, the file is only read in order to copy it. A file
    that is only copied is allowed to have the last schema before the first release (`UNRELEASED`).
    """

    path: Path
    identity: tuple[int, int]
    is_writable: bool
    is_immutable: bool = False
    key: StoreKey | None = None
    is_copied: bool = False
    wait: LockWait = msgspec.field(default_factory=LockWait)


class Patience:
    """A busy handler with random wait times, so that many waiters do not retry at the same time.

    Units: `pause_s` contains the shortest and the longest wait in seconds.
    """

    def __init__(
        self, seed: bytes, limit: LockWait | float, pause_s: tuple[float, float] = BUSY_WAIT_S
    ) -> None:
        self._wait = limit if isinstance(limit, LockWait) else LockWait(limit)
        self._seed = seed
        self._pause_s = pause_s
        self._random: random.Random | None = None
        self._since = 0.0

    def __call__(self, attempt: int) -> bool:
        """Wait briefly; return False after the time limit."""
        now = time.monotonic()
        if attempt == 0:
            self._since = now
        if self._random is None:
            self._random = random.Random(self._seed)
        time.sleep(self._random.uniform(*self._pause_s))
        return now < self._since + self._wait.limit_s


def open_site(
    path: Path,
    *,
    seed: Callable[[], bytes],
    key: StoreKey | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    is_copied: bool = False,
) -> Site:
    """Return the store at `path`, migrated to the newest schema.

    If `is_copied` is True, the file is only read in order to copy it. A file that is only copied is
    allowed to have the last schema before the first release.
    Raises: StoreReadOnly if the store cannot be migrated. The call raises KeyMissing, KeyWrong or
    StoreNotEncrypted if `key` does not fit the file. The call raises NotAStore, StoreCorrupt,
    StoreTooNew, StoreTooOld or StoreUnavailable if the file cannot be used.
    """
    site = locate_site(path, key=key, is_copied=is_copied)
    site.wait.shorten(lock_timeout_s)
    if not _is_current(site):
        prepare(site, seed())
    return site


def _is_current(site: Site) -> bool:
    """Return whether the header shows the newest schema and write-ahead logging, and no log exists.

    If the result is True, the store needs no call of `prepare`. The result is always False for a
    read-only store, because only `prepare` checks its schema.
    """
    if not site.is_writable or _is_in_use(site.path):
        return False
    header = _header(site.path)
    version = int.from_bytes(header[60:64], "big")
    return header[18:20] == _USES_LOG and version == latest_version()


def prepare(site: Site, seed: bytes, *, is_draft: bool = False) -> None:
    """Migrate the store at `site` to the current schema, or initialize an empty file.

    `is_draft` means that no other process has opened the file yet. A draft needs no journal on the
    disk, because the draft of a killed process is deleted and not used. The creator of a draft
    syncs the draft once, when it is complete.

    Raises: the errors of `open_site`.
    """
    with opened(site, lambda: bare_connection(site, seed)) as db:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if is_draft:
            db.pragma("synchronous", "OFF")
            db.pragma("journal_mode", "MEMORY")
        _bring_up_to_date(db, site)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


@contextmanager
def opened(site: Site, connect: Callable[[], Connection]) -> Generator[Connection]:
    """Connect to `site`, and close the connection when the block ends.

    Raises: a store error in place of an apsw.Error that the block raises (`refusal`).
    """
    db: Connection | None = None
    try:
        db = connect()
        yield db
    except apsw.Error as error:
        raise refusal(error, site, db.system_errno if db else 0) from error
    finally:
        if db is not None:
            db.close()


def connection(site: Site, seed: bytes) -> Connection:
    """Open a connection and apply all settings that each connection needs.

    Raises: the errors of `open_site`, for example KeyMissing or KeyWrong if the key was changed
    since the store was opened. The call raises StoreUnavailable if another file has replaced the
    store's file, and apsw.Error if the file cannot be opened.
    """
    db = bare_connection(site, seed)
    try:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        db.pragma("schema_version")  # the first read of the file, after any exclusive lock
        if identity_of(site.path) != site.identity:
            raise StoreUnavailable(str(site.path), "its file was replaced; open it again")
        check_version(site, db)
        if site.is_writable:  # a rekey that ended meanwhile without a result has left no log
            _use_log(db, site)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    except apsw.Error as error:
        system_errno = db.system_errno
        db.close()
        raise refusal(error, site, system_errno) from error
    except BaseException:
        db.close()
        raise
    db.wal_autocheckpoint(0)
    db.pragma("cache_size", -CACHE_KIB)
    db.pragma("temp_store", "MEMORY")
    db.pragma("secure_delete", "ON")
    db.pragma("fullfsync", "ON")  # only has an effect on macOS
    db.pragma("checkpoint_fullfsync", "ON")
    db.pragma("journal_size_limit", LOG_LIMIT_BYTES)
    return db


def refusal(error: apsw.Error, site: Site, system_errno: int = 0) -> PerdureError:
    """Map `error` to a store error for `site`; also recognize the errors of a wrong key."""
    if not isinstance(error, apsw.NotADBError):
        return meaning_of(error, site.path, system_errno, site.wait.limit_s)
    header = _header(site.path)
    if not header.startswith(_MAGIC) and site.key is not None:
        return KeyWrong(str(site.path))
    if not header.startswith(_MAGIC) and looks_encrypted(header):
        return KeyMissing(str(site.path))
    return StoreNotEncrypted(str(site.path)) if site.key else meaning_of(error, site.path)


def identity_of(path: Path) -> tuple[int, int]:
    """Return a value that distinguishes the file at `path` from a later file with the same name."""
    try:
        found = path.stat()
    except FileNotFoundError as error:
        raise StoreUnavailable(str(path), "its file is gone") from error
    return found.st_dev, found.st_ino


def bare_connection(site: Site, seed: bytes) -> Connection:
    """Open a connection that waits for locks; raise an error if it cannot read the file."""
    if site.is_immutable:
        db = _immutable_connection(site.path, site.key)
    else:
        mode = apsw.SQLITE_OPEN_READWRITE if site.is_writable else apsw.SQLITE_OPEN_READONLY
        db = hardened(str(site.path), mode)
        unlock(db, site.key)
    db.set_busy_handler(Patience(seed, site.wait))
    return db


def _immutable_connection(path: Path, key: StoreKey | None) -> Connection:
    """Open a connection without locks or extra files; only correct if no process can write."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = hardened(path.absolute().as_uri() + "?immutable=1", flags)
    unlock(db, key)
    return db


# ---------------------------------------------------------------- inspection of the file


def locate_site(path: Path, *, key: StoreKey | None, is_copied: bool = False) -> Site:
    """Inspect the file at `path`, but not its schema.

    If `is_copied` is True, the file is only read in order to copy it. A file that is only copied is
    allowed to have the last schema before the first release.
    Raises: the errors of `open_site`.
    """
    remove_dead_copy(path)
    _check_beside(path)
    if path.is_dir():
        raise NotAStore(str(path), "it is a folder")
    if path.exists() and not path.is_file():  # a device is as empty as a new file, and shared
        raise NotAStore(str(path), "it is not a file but a device or a pipe")
    if not path.exists():
        raise NotAStore(str(path), "no such file")
    if not os.access(path, os.R_OK):
        raise StoreUnavailable(str(path), _UNREADABLE)
    _check_file(path, key, is_copied=is_copied)
    can_write = _is_writable(path) and os.access(path.parent, os.W_OK)
    is_immutable = not can_write and not _has_log(path)
    return Site(path, identity_of(path), can_write and not is_copied, is_immutable, key, is_copied)


def _is_writable(path: Path) -> bool:
    """Return whether this user can write `path`.

    The result is False, even for root, if the file gives nobody a write permission.
    """
    return os.access(path, os.W_OK) and bool(path.stat().st_mode & _ANY_WRITE)


def _check_file(path: Path, key: StoreKey | None, *, is_copied: bool) -> None:
    """Reject a file that is not a store; retry if another process is creating it."""
    for look in count(1):
        found = _state(path)
        try:
            _check_header(path, found[0], key, is_copied=is_copied)
        except PerdureError:
            if look == LOOKS or _state(path) == found:
                raise
        else:
            return


def _state(path: Path) -> tuple[bytes, int]:
    """Return the header of the file, and the time of its last write."""
    try:
        return _header(path), path.stat().st_mtime_ns
    except FileNotFoundError as error:
        raise StoreUnavailable(str(path), "its file is gone") from error


def _check_header(path: Path, header: bytes, key: StoreKey | None, *, is_copied: bool) -> None:
    if len(header) < _HEADER_BYTES:
        raise _too_short(path, header)
    if header.startswith(_MAGIC) and len(header) == _HEADER_BYTES:
        _check_plain(path, header, key, is_copied=is_copied)
    elif int.from_bytes(header[68:72], "big") == APPLICATION_ID:
        raise StoreCorrupt(str(path), "its header is damaged")
    elif not looks_encrypted(header):
        raise NotAStore(str(path), _NO_DATABASE)
    elif key is None:
        raise KeyMissing(str(path))
    else:
        _check_first_page(path, key)


def _too_short(path: Path, header: bytes) -> PerdureError:
    """Return the error for a file that is shorter than the header that every new store has."""
    has_log = path.with_name(path.name + "-wal").exists()
    if header and not has_log and not header.startswith(_MAGIC[: len(header)]):
        return NotAStore(str(path), _NO_DATABASE)
    size = f"it has {len(header)} bytes" if header else "it is empty"
    return StoreCorrupt(
        str(path), f"{size}: restore a backup, or remove the file to begin a new store"
    )


def _check_plain(path: Path, header: bytes, key: StoreKey | None, *, is_copied: bool) -> None:
    application = int.from_bytes(header[68:72], "big")
    if application != APPLICATION_ID and (application != 0 or _has_tables(path)):
        raise NotAStore(str(path), _FOREIGN)
    if key is not None:
        raise StoreNotEncrypted(str(path))
    if application == APPLICATION_ID:
        check_version_number(path, int.from_bytes(header[60:64], "big"), is_copied=is_copied)
        _check_first_page(path, None)


def _header(path: Path) -> bytes:
    flags = [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0]
    try:
        file = apsw.VFSFile("", str(path.resolve()), flags)
        try:
            return file.xRead(_HEADER_BYTES, 0)
        finally:
            file.xClose()
    except apsw.Error as error:
        raise meaning_of(error, path) from error


def _has_tables(path: Path) -> bool:
    """Whether the database contains any table."""
    if _has_log(path):
        return True
    try:
        with closing(_immutable_connection(path, None)) as db:
            return db.execute("SELECT 1 FROM sqlite_schema").fetchone() is not None
    except apsw.Error:
        return True


def _check_first_page(path: Path, key: StoreKey | None) -> None:
    """Detect damage before SQLite creates its files; do nothing if the file is open elsewhere."""
    if _is_in_use(path):
        return
    try:
        with closing(_immutable_connection(path, key)) as db:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except apsw.Error as error:
        if not _is_in_use(path):
            raise refusal(error, Site(path, (0, 0), is_writable=False, key=key)) from error


def _is_in_use(path: Path) -> bool:
    file = path.resolve()  # SQLite writes the logs beside the file, not beside a link to it
    return any(file.with_name(file.name + end).exists() for end in BESIDE)


def _check_beside(path: Path) -> None:
    """Reject a link, a pipe or a folder in place of one of SQLite's side files."""
    for end in BESIDE:
        with suppress(FileNotFoundError):
            try:
                status_of(path.with_name(path.name + end))
            except NotRegular as error:
                raise StoreUnavailable(str(error.filename), str(error)) from error


def _has_log(path: Path) -> bool:
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:  # the last process that closes the store removes it
        return False


def check_version(site: Site, db: Connection) -> int:
    """Return the version of a store's schema.

    Check that the schema contains only perdure's objects. The write-ahead log may be newer than the
    file's header, so the function checks both.
    Raises: NotAStore, StoreTooNew, StoreTooOld, StoreSchemaForeign.
    """
    version = version_of(db)
    if version > 0 and db.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(str(site.path), _FOREIGN)
    check_version_number(site.path, version, is_copied=site.is_copied)
    return check_schema(db, site.path)


def check_version_number(path: Path, version: int, *, is_copied: bool = False) -> None:
    """Reject unknown schemas. If `is_copied` is True, accept the schema `UNRELEASED`.

    Raises: StoreTooNew, StoreTooOld.
    """
    if 0 < version < first_version() and not (is_copied and version == UNRELEASED):
        can_be_copied = version == UNRELEASED
        raise StoreTooOld(str(path), version, first_version(), can_be_copied=can_be_copied)
    if version > latest_version():
        raise StoreTooNew(str(path), version, latest_version())


# ---------------------------------------------------------------- schema


def _bring_up_to_date(db: Connection, site: Site) -> None:
    version = check_version(site, db)
    if not site.is_writable:
        if version < (UNRELEASED if site.is_copied else latest_version()):
            raise StoreReadOnly(str(site.path))
        return
    if version == 0:
        create_schema(db)
    elif version < latest_version():
        migrate(db)
    _use_log(db, site)


def _use_log(db: Connection, site: Site) -> None:
    """Switch the database to write-ahead logging, if needed; the setting is permanent."""
    patience = Patience(b"", site.wait)
    for attempt in count():
        try:
            mode = db.pragma("journal_mode", "WAL")
        except apsw.BusyError:  # SQLite does not call the busy handler here
            if not patience(attempt):
                raise
        else:
            if mode != "wal":
                raise StoreUnavailable(str(site.path), "its folder cannot hold a write-ahead log")
            return
