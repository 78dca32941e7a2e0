"""The index file ``.perdure/search.db``: perdure opens only its own index and replaces other files.

The index can be rebuilt from the session files at any time, so a damaged or foreign index file is
removed, not repaired. All processes hold the lock `LOCK` while they open, change or remove the
file. SQLite finds the log files of a database by the name of the database. If the log files were
not removed together with the index, SQLite would apply the log files to a new index with the same
name.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NoReturn, cast

import apsw

from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.words import VERSION
from perdure.stores.access.sqlite_connection import Connection, SqlRows, hardened, transaction
from perdure.stores.jsonl.disk.folder import Folder, Stamp
from perdure.stores.jsonl.search.file_table import INDEXED, TABLES, Catalogue, Known, catalogue_in
from perdure.stores.regular_files import open_regular, status_of
from perdure.stores.search.recall_plan import RecallCache
from perdure.stores.search.sqlite_tables import TABLES as INDEX_TABLES
from perdure.stores.search.sqlite_tables import stored_mark

NAME = "search.db"
LOCK, BUILDING = "search", "indexing"
"""Names of locks: one to open or change the file, one for the process that updates the index."""

APPLICATION_ID = 0x50524453
"""``PRAGMA application_id``: the letters PRDS."""
FORMAT = 1
"""``PRAGMA user_version``; a file with another version is replaced."""

BUSY_MS = 2_000
"""How long a change waits for the reads of other processes."""
CACHE_KIB = 4_096

_LOGS = ("-wal", "-shm", "-journal")
_OBJECTS = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name LIMIT 100"
_WRONG = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.FormatError,
    apsw.SQLError,
    apsw.ConstraintError,
    apsw.MismatchError,
)
"""Errors that show that the file is not an index of perdure."""
_NO_ACCESS = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class IndexUnusable(Exception):
    """The index file is damaged, is no index of this folder, or has an unreadable version."""


class IndexTables(SqlRows):
    """The tables of an open index file.

    `cache` contains the texts for recalls. `added` are sessions that were not indexed yet when the
    last recall added their texts to `cache`.
    """

    def __init__(self, db: Connection, identity: tuple[int, int] | None = None) -> None:
        super().__init__(db)
        self.identity = identity
        self.cache = RecallCache()
        self.added: list[Known] = []
        self._catalogue: tuple[int, Catalogue] | None = None

    def catalogue(self) -> Catalogue:
        """Return the state of the index, within a transaction. Raises: ValueError."""
        stored_mark(self, INDEXED)  # begins the snapshot, and with it the version
        version = self.db.data_version()
        if self._catalogue is None or self._catalogue[0] != version:
            self._catalogue = version, catalogue_in(self)
        return self._catalogue[1]


class IndexFile:
    """Opens and changes the index file of one folder; only one thread at a time may use it."""

    def __init__(self, folder: Folder, dialect: str) -> None:
        self.folder = folder
        self.dialect = dialect
        self.path = folder.inner / NAME
        self._tables: IndexTables | None = None

    # -- reading

    @contextmanager
    def reading(self) -> Generator[IndexTables]:
        """Return the tables as one snapshot; empty tables if there is no file.

        Raises: IndexUnusable for a damaged file, even within the block; StoreReadOnly, StoreFull,
        StoreUnavailable if the file cannot be read.
        """
        tables = self._current() or self._opened()
        try:
            with self._translated(tables), transaction(tables.db, "BEGIN", is_kept=False):
                yield tables
        finally:
            if tables is not self._tables:
                tables.db.close()

    def stamp(self) -> tuple[Stamp | None, ...]:
        """Return a value that changes with each change of the index."""
        return tuple(map(_stamp_of, (self.path, self._beside("-wal"))))

    def size_bytes(self) -> int:
        """Return the size of the index file and of its log files."""
        stamps = (_stamp_of(path) for path in (self.path, *map(self._beside, _LOGS)))
        return sum(stamp.size for stamp in stamps if stamp is not None)

    # -- changes

    @contextmanager
    def hold_lock(self) -> Generator[None]:
        """Hold the lock of the index: no other process opens, changes or removes the index."""
        with self.folder.hold_lock(LOCK, ""):
            yield

    @contextmanager
    def changing(self) -> Generator[IndexTables]:
        """Return the tables in one transaction, under the lock. Raises: the errors of `reading`."""
        tables = self.make()
        with self._translated(tables), transaction(tables.db):
            yield tables

    def make(self) -> IndexTables:
        """Return the tables; create a missing or unusable file. The caller holds the lock.

        Raises: the errors of `reading`.
        """
        try:
            return self._current() or self._connected(is_created=True)
        except IndexUnusable:  # also if its creator was killed
            self.remove()
            return self._connected(is_created=True)

    @property
    def exists(self) -> bool:
        """Whether the path of the index refers to anything other than a folder."""
        return os.path.lexists(self.path) and not self._is_folder

    @property
    def _is_folder(self) -> bool:
        return self.path.is_dir() and not self.path.is_symlink()

    def settle(self) -> bool:
        """Move the write-ahead log, which may contain removed words, into the index file.

        The caller holds the lock. Returns False after an error, or if another process still reads
        an older state.
        """
        tables = self._current()
        if tables is None:
            return False
        try:
            tables.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error:
            return False
        return True

    def remove(self) -> None:
        """Remove the file under the lock, whatever its content.

        Durable: as durable as the store's sessions. Raises: StoreReadOnly, StoreUnavailable.
        """
        self.close()
        # The file first: without it, SQLite never reads its logs.
        for path in (self.path, *map(self._beside, _LOGS)):
            with suppress(FileNotFoundError):
                self.folder.remove(path)

    def close(self) -> None:
        """Close the file."""
        if self._tables is not None:
            self._tables.db.close()
            self._tables = None

    # -- opening

    def _current(self) -> IndexTables | None:
        """Return the open tables if the index path still refers to the opened file."""
        if self._tables is not None and self._tables.identity != _identity(self.path):
            self.close()
        return self._tables

    def _opened(self) -> IndexTables:
        """Open the file to read it. Raises: the errors of `reading`."""
        if not self.exists:
            return _empty_tables()
        try:
            with self.folder.hold_lock(LOCK, "", is_shared=True):
                return self._connected(is_created=False)
        except StoreReadOnly:
            return self._connected_to_read()

    def _connected(self, *, is_created: bool) -> IndexTables:
        """Open the file under the lock. Raises: the errors of `reading`."""
        if not self.exists:
            if not is_created:
                return _empty_tables()
            self._create()
        self._check_names()
        if os.path.lexists(self._beside("-journal")):
            raise IndexUnusable("it has a rollback journal")  # an index of perdure has none
        db = self._connect(apsw.SQLITE_OPEN_READWRITE)
        with self._closed_on_error(db):
            db.pragma("synchronous", "NORMAL")
            db.pragma("secure_delete", "ON")
            if db.pragma("journal_mode") != "wal":
                raise IndexUnusable("it has no write-ahead log")
            self._tables = self._checked(db)
        return self._tables

    def _connected_to_read(self) -> IndexTables:
        """Open the index file in a folder where this process cannot write."""
        self._check_names()
        log = _stamp_of(self._beside("-wal"))
        is_alone = log is None or log.size == 0
        db = self._connect(apsw.SQLITE_OPEN_READONLY, is_immutable=is_alone)
        with self._closed_on_error(db):
            return self._checked(db)

    def _connect(self, flags: int, *, is_immutable: bool = False) -> Connection:
        path = Path(os.path.realpath(self.path.parent)) / NAME
        name = str(path)
        if is_immutable:
            name, flags = f"{path.as_uri()}?immutable=1", flags | apsw.SQLITE_OPEN_URI
        try:
            db = hardened(name, flags | apsw.SQLITE_OPEN_NOFOLLOW)
        except apsw.Error as error:
            self._fail(error)
        with self._closed_on_error(db):
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # it would also remove the log
            db.pragma("busy_timeout", BUSY_MS)
            db.pragma("temp_store", "MEMORY")
            db.pragma("cache_size", -CACHE_KIB)
        return db

    def _checked(self, db: Connection) -> IndexTables:
        """Return the tables of `db`, if this version of perdure made them for this dialect."""
        is_ours = (db.pragma("application_id"), db.pragma("user_version")) == (
            APPLICATION_ID,
            FORMAT,
        )
        if not is_ours or _schema_of(db) != _schema():
            raise IndexUnusable("it is not an index that this program wrote")
        tables = IndexTables(db, _identity(self.path))
        if tables.value("SELECT name FROM namespace WHERE no = ?", INDEXED) != self.dialect:
            raise IndexUnusable("it is the index of another dialect")
        if stored_mark(tables, INDEXED).version not in (0, VERSION):
            raise IndexUnusable("it was built by other rules")
        return tables

    def _create(self) -> None:
        """Create an empty index file, readable by its owner only."""
        if self._is_folder:
            raise StoreUnavailable(str(self.path), "it is a folder; remove it")
        self.remove()  # log files of a removed index
        try:
            os.close(open_regular(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        except OSError as error:
            self.folder.fail(error)
        try:
            db = self._connect(apsw.SQLITE_OPEN_READWRITE)
            with self._closed_on_error(db):
                db.pragma("journal_mode", "WAL")
                with transaction(db):
                    _fill(db)
                    db.execute("INSERT INTO namespace VALUES (?, ?)", (INDEXED, self.dialect))
        except BaseException:
            self.remove()  # a part of an index would look like a damaged one
            raise
        db.close()

    def _check_names(self) -> None:
        """Raises: IndexUnusable if an existing file is not regular or has several hard links."""
        for path in (self.path, *map(self._beside, _LOGS)):
            try:
                if status_of(path).st_nlink > 1:
                    raise IndexUnusable(f"{path.name} has another name")
            except FileNotFoundError:
                continue
            except OSError as error:
                raise IndexUnusable(f"{path.name}: {error}") from error

    def _beside(self, end: str) -> Path:
        return self.path.with_name(NAME + end)

    # -- errors

    @contextmanager
    def _closed_on_error(self, db: Connection) -> Generator[None]:
        try:
            yield
        except (apsw.Error, *DAMAGE) as error:
            number = db.system_errno
            db.close()
            self._fail(error, number)
        except BaseException:
            db.close()
            raise

    @contextmanager
    def _translated(self, tables: IndexTables) -> Generator[None]:
        try:
            yield
        except apsw.Error as error:
            self._fail(error, tables.db.system_errno)

    def _fail(self, error: Exception, number: int = 0) -> NoReturn:
        """Raise a store error for `error`, or IndexUnusable if the index file itself is unusable.

        `number` is the last error number of the operating system.
        """
        place = str(self.path)
        if isinstance(error, apsw.FullError) or (_is_of_system(error) and number in _NO_SPACE):
            raise StoreFull(place) from error
        if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError) or (
            _is_of_system(error) and number in _NO_ACCESS
        ):
            raise StoreReadOnly(place) from error
        told = str(error) or type(error).__name__
        if isinstance(error, (*_WRONG, *DAMAGE)):
            raise IndexUnusable(told) from error
        raise StoreUnavailable(place, told) from error


def _is_of_system(error: Exception) -> bool:
    return isinstance(error, apsw.IOError | apsw.CantOpenError)


def _fill(db: Connection) -> None:
    db.execute(INDEX_TABLES)
    db.execute(TABLES)
    db.pragma("application_id", APPLICATION_ID)
    db.pragma("user_version", FORMAT)


def _empty_tables() -> IndexTables:
    """Return the tables of an empty index, in memory."""
    db = cast("Connection", apsw.Connection(":memory:"))
    _fill(db)
    return IndexTables(db)


def _schema_of(db: Connection) -> list[tuple[object, ...]]:
    return db.execute(_OBJECTS).fetchall()


@cache
def _schema() -> list[tuple[object, ...]]:
    with closing(_empty_tables().db) as db:
        return _schema_of(db)


def _stamp_of(path: Path) -> Stamp | None:
    try:
        return Stamp.of(path.lstat())
    except OSError:
        return None


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
