"""An open database file, shared by all handles of this process, for all namespaces.

An open file has one writer, a few readers and one watcher. The threads of the writer, readers and
watcher start on first use and end with the last handle. A forked child process cannot use the
database, because threads and locks remain in the parent.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Collection, Generator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import apsw

from perdure.errors import (
    KeyMissing,
    KeyWrong,
    PerdureError,
    StoreCorrupt,
    StoreNotEncrypted,
    StoreReadOnly,
    StoreUnavailable,
)
from perdure.session.clock import RandomSource
from perdure.session.ids import StreamId
from perdure.stores.access.file_guard import FileGuard
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import OwnProcess, running_loop
from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.key import StoreKey
from perdure.stores.protocol import Durability
from perdure.stores.sqlite.connections import (
    CLOSING_LIMIT_S,
    LOG_FILES,
    LOOKS,
    Patience,
    Site,
    connection,
    identity_of,
    open_site,
)
from perdure.stores.sqlite.faults import NO_VALUES, meaning_of, no_value
from perdure.stores.sqlite.files.creation import create_store
from perdure.stores.sqlite.log.commit_look import CommitLook
from perdure.stores.sqlite.log.fsync import LogDoubt, LogSync
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.writer import Answer, Writer
from perdure.stores.wakeups import Changes, Look, Place, Watcher

READERS = 4
SEED_BYTES = 16
TRUNCATE_LIMIT_S = 5.0

T = TypeVar("T")


class Database:
    """The threads and connections with which this process uses one database file."""

    def __init__(self, site: Site, random: RandomSource) -> None:
        self.site = site
        self.path = site.path
        self.handles = 0
        self.process = OwnProcess(str(site.path))
        self._random = random
        self._lock = threading.Lock()
        self._is_closed = False
        self._writer: Writer | None = None
        self._doubt = LogDoubt()
        self._guard = FileGuard(self.path)
        self._readers = _Readers(self.path, self._connect, self._doubt, self._guard)
        self._watcher = Watcher(self._looking)

    @property
    def is_replaced(self) -> bool:
        """Whether another file has replaced this file."""
        return _identity(self.path) not in (self.site.identity, None)

    def check_usable(self) -> None:
        """Check that the caller can use the database.

        Raises: StoreUnavailable in a forked child, or if the database is closed. Raises NotAsyncio
        if no asyncio event loop runs.
        """
        self.process.check()
        running_loop()
        if self._is_closed:
            raise StoreUnavailable(str(self.path), "it is closed")

    async def write(
        self,
        work: Callable[[Tables], T],
        durability: Durability,
        *,
        is_composite: bool = False,
    ) -> T:
        """Run `work` in a transaction on the writer's thread; return after the commit."""
        self.check_usable()
        if not self.site.is_writable:
            raise StoreReadOnly(str(self.path))
        writer = self._writer or await asyncio.to_thread(self._start_writer)
        return await writer.run(work, durability, is_composite=is_composite)

    async def read(self, work: Callable[[Tables], T], *, is_durable: bool = True) -> T:
        """Run `work` on a reader's thread, in one snapshot of the database.

        If `is_durable` is True, all returned data is on the disk.
        """
        self.check_usable()
        is_synced = is_durable and self.site.is_writable
        return await self._readers.run(
            lambda reader: self._at_one_moment(work, reader, is_synced=is_synced)
        )

    async def truncate_log(self) -> bool:
        """Copy all of the write-ahead log into the database, and empty the log file.

        Return False if a connection kept an older snapshot for `TRUNCATE_LIMIT_S`.
        """
        self.check_usable()
        return await asyncio.to_thread(self._truncate_log)

    def _truncate_log(self) -> bool:
        db = self._connect()
        try:
            db.set_busy_handler(Patience(self._random(SEED_BYTES), TRUNCATE_LIMIT_S))
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            return False
        except apsw.Error as error:
            raise meaning_of(error, self.path, db.system_errno) from error
        finally:
            db.close()
        return True

    def watch(self, namespace: str, stream: StreamId | None) -> Changes:
        """Return an iterator that wakes after commits to `stream`.

        If `stream` is None, the iterator wakes after commits to any stream of the namespace.
        """
        self.check_usable()
        return self._watcher.watch(namespace, stream)

    def close(self) -> None:
        """Finish pending work and close the file. The call blocks."""
        self._is_closed = True
        self.site.wait.shorten(CLOSING_LIMIT_S)
        self._watcher.close()
        self._readers.close()
        with self._lock:
            if self._writer is not None:
                self._writer.close()

    def _connect(self) -> Connection:
        try:
            return connection(self.site, self._random(SEED_BYTES))
        except apsw.Error as error:
            raise meaning_of(error, self.path, waited_s=self.site.wait.limit_s) from error

    @contextmanager
    def _looking(self) -> Generator[Look]:
        """Provide a function that returns the streams written by any process since its last call.

        New commits are detected in shared memory, without reading the disk. Each call raises the
        errors of `FileGuard.check`.
        """
        with closing(self._connect()) as db:
            commit_look = CommitLook(db)

            def look(since_s: float) -> Collection[Place] | None:
                self._guard.check()
                return commit_look(since_s)

            try:
                yield look
            except apsw.Error as error:
                raise meaning_of(error, self.path) from error

    def _start_writer(self) -> Writer:
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable(str(self.path), "it is closed")
            if self._writer is None:
                self._writer = Writer(self.site, self._connect, self._watcher.wake, self._doubt)
            return self._writer

    def _at_one_moment(self, work: Callable[[Tables], T], reader: _Reader, *, is_synced: bool) -> T:
        tables = reader.tables
        reader.guard.check()
        try:
            tables.run("BEGIN")
            try:
                result = work(tables)
            finally:
                if tables.db.in_transaction:  # otherwise the error ended it already
                    tables.run("ROLLBACK")
            if is_synced:
                reader.log.catch_up()
        except apsw.Error as error:
            waited_s = self.site.wait.limit_s
            meaning = meaning_of(error, self.path, tables.db.system_errno, waited_s)
            if isinstance(meaning, StoreCorrupt):
                self._stop_writing(meaning)
            raise meaning from error
        except NO_VALUES as error:
            raise no_value(error, self.path) from error
        return result

    def _stop_writing(self, damage: StoreCorrupt) -> None:
        if self._writer is not None:
            self._writer.damage = damage.reason


class _Reader:
    """The connection and state of a reader's thread."""

    def __init__(self, db: Connection, doubt: LogDoubt, path: Path) -> None:
        self.tables = Tables(db)
        self.log = LogSync(db, doubt)
        self.guard = FileGuard(path, LOG_FILES)


class _Readers:
    """A few threads, each with its own connection.

    This class replaces a ThreadPoolExecutor, which counts a thread as idle only after the thread
    has delivered its answer. For a read that follows immediately, a ThreadPoolExecutor would start
    another thread.
    """

    def __init__(
        self, path: Path, connect: Callable[[], Connection], doubt: LogDoubt, file: FileGuard
    ) -> None:
        self._path = path
        self._connect = connect
        self._doubt = doubt
        self._file = self._guard = file
        self._local = threading.local()
        self._opened: list[Connection] = []
        self._is_closed = False
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._asking = threading.Lock()  # after the end markers nothing is queued
        self._unanswered = 0
        self._threads: list[threading.Thread] = []

    async def run(self, work: Callable[[_Reader], T]) -> T:
        """Run `work` on one of the threads."""
        loop = running_loop()
        answer: Answer[T] = Answer(loop)
        with self._asking:
            if self._is_closed:
                raise self._closed()
            self._unanswered += 1
            self._queue.put(partial(self._answer, loop, answer, work))
            if len(self._threads) < min(self._unanswered, READERS):
                self._start_thread()
        return await answer

    def _start_thread(self) -> None:
        name = f"perdure-reader_{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (read := self._queue.get()) is not None:
            read()
            del read  # free its data before waiting

    def _answer(
        self,
        loop: asyncio.AbstractEventLoop,
        answer: Answer[Any],
        work: Callable[[_Reader], object],
    ) -> None:
        """Run `work` and pass its outcome to the event loop of its caller."""
        value, failure = None, None
        try:
            if not answer.is_cancelled:
                value = self._with_reader(work)
        except BaseException as error:  # noqa: BLE001 - whatever it is, its caller gets it
            failure = error
        with self._asking:
            self._unanswered -= 1
        with suppress(RuntimeError):  # the loop is closed: nothing waits any more
            loop.call_soon_threadsafe(answer.give, value, failure)

    def _with_reader(self, work: Callable[[_Reader], T]) -> T:
        if self._is_closed:
            raise self._closed()
        reader: _Reader | None = getattr(self._local, "reader", None)
        if reader is None:
            reader = self._local.reader = self._start_reader()
        try:
            return work(reader)
        finally:
            if reader.tables.db.txn_state() != apsw.SQLITE_TXN_NONE:
                self._give_up(reader.tables.db)

    def _start_reader(self) -> _Reader:
        """Open another connection, to the same file as the other connections.

        Raises: the errors of `FileGuard.check`.
        """
        self._guard.check()
        db = self._connect()
        db.pragma("query_only", "ON")
        self._opened.append(db)
        reader = _Reader(db, self._doubt, self._path)
        self._guard = reader.guard  # the log files exist as long as a connection is open
        return reader

    def _give_up(self, db: Connection) -> None:
        """Close a connection with an unfinished read, because it would never see later commits."""
        self._local.reader = None
        self._opened.remove(db)
        if not self._opened:
            self._guard = self._file
        db.close(force=True)

    def _closed(self) -> StoreUnavailable:
        return StoreUnavailable(str(self._path), "it is closed")

    def close(self) -> None:
        """Wait for running reads, then close the connections. The call blocks."""
        with self._asking:
            self._is_closed = True
            for _ in self._threads:
                self._queue.put(None)
        for thread in self._threads:
            thread.join()
        for db in self._opened:
            db.close()
        self._opened.clear()


# ---------------------------------------------------------------- one per file and process


class _Open:
    """The databases that are open in this process, by device and inode."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.databases: dict[tuple[int, int, int], Database] = {}


_OPEN = _Open()


def attach(
    path: Path,
    random: RandomSource,
    *,
    is_created: bool,
    key: StoreKey | None = None,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    is_copied: bool = False,
) -> Database:
    """Return the open database at `path`; open it if this process has not opened it yet.

    The call blocks. The shortest `lock_timeout_s` among the handles of a file applies to all its
    handles.
    Raises: StoreReadOnly if this user has no permission to look into the folder; the errors of
    `connections.open_site`.
    """
    path = path.absolute()
    with _OPEN.lock:
        database = _OPEN.databases.get(_key(path)) if _is_there(path) else None
        if database is None:
            seed = partial(random, SEED_BYTES)
            if is_created and not path.exists():
                create_store(path, seed, key)
            open_file = partial(
                open_site,
                path,
                seed=seed,
                key=key,
                lock_timeout_s=lock_timeout_s,
                is_copied=is_copied,
            )
            site = _open_stable(path, open_file)
            database = _OPEN.databases[_key(path)] = Database(site, random)
        elif database.site.key != key:
            raise _other_key(database.site, key)
        database.site.wait.shorten(lock_timeout_s)
        database.handles += 1
        return database


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError as error:
        raise StoreReadOnly(str(path)) from error


def _open_stable(path: Path, open_file: Callable[[], Site]) -> Site:
    """Run `open_file` on `path`; retry if another file replaces the file meanwhile.

    A rekey, a repair or a restore replaces the file. An error about the old file says nothing about
    the new file.
    """
    for look in range(LOOKS):
        before = _identity(path)
        try:
            site = open_file()
        except PerdureError:
            if look == LOOKS - 1 or _identity(path) == before:
                raise
        else:
            if _identity(path) == site.identity:
                return site
    raise StoreUnavailable(str(path), "its file was replaced again and again")


def _identity(path: Path) -> tuple[int, int] | None:
    """Return a value that identifies the file at `path`; None if it is missing."""
    return identity_of(path) if path.exists() else None


def is_attached(path: Path) -> bool:
    """Whether this process has the database at `path` open."""
    with _OPEN.lock:
        return _key(path) in _OPEN.databases


def _other_key(site: Site, key: StoreKey | None) -> KeyMissing | KeyWrong | StoreNotEncrypted:
    """Return the error for `key` if the database is open with another key or without a key."""
    if site.key is None:
        return StoreNotEncrypted(str(site.path))
    return KeyMissing(str(site.path)) if key is None else KeyWrong(str(site.path))


def detach(database: Database) -> None:
    """Release a handle; releasing the last handle closes the database. The call blocks.

    A forked child closes no file, because SQLite would affect the parent's files.
    """
    if not database.process.is_this:
        return
    with _OPEN.lock:
        database.handles -= 1
        if database.handles > 0:
            return
        for key, open_database in list(_OPEN.databases.items()):
            if open_database is database:
                del _OPEN.databases[key]
        database.close()


def _key(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return os.getpid(), found.st_dev, found.st_ino


def _forget_lock() -> None:
    """Replace the lock in a forked child, because the parent may have held the lock at the fork."""
    _OPEN.lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_forget_lock)
