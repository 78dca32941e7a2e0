"""Connections to SQLite files, with defenses against a file that another program has written."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, cast

import apsw

LIMITS = (
    (apsw.SQLITE_LIMIT_SQL_LENGTH, 100_000),
    (apsw.SQLITE_LIMIT_COLUMN, 100),
    (apsw.SQLITE_LIMIT_EXPR_DEPTH, 100),
    (apsw.SQLITE_LIMIT_TRIGGER_DEPTH, 2),
    (apsw.SQLITE_LIMIT_ATTACHED, 1),
    (apsw.SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 10_000),
    (apsw.SQLITE_LIMIT_WORKER_THREADS, 0),
)
"""SQLite's limits: what the statements of perdure need, plus a margin."""

_SWITCHES = (
    (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
    (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0),
    (apsw.SQLITE_DBCONFIG_ENABLE_FTS3_TOKENIZER, 0),
    # Plans do not depend on values: else each call of a statement with a join prepares it again.
    (apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1),
)

Row = tuple[Any, ...]


class LogConnection(Protocol):
    """The methods of ``apsw.Connection`` that are used for the write-ahead log."""

    def data_version(self) -> int: ...

    def file_control(self, dbname: str, op: int, pointer: int, /) -> bool: ...

    def set_wal_hook(self, callback: Callable[[Any, str, int], int], /) -> None: ...

    def wal_autocheckpoint(self, n: int, /) -> None: ...

    def wal_checkpoint(self, *, mode: int) -> tuple[int, int]: ...


class Connection(LogConnection, Protocol):
    """The methods of ``apsw.Connection`` that perdure uses; apsw's annotations are incomplete."""

    @property
    def in_transaction(self) -> bool: ...

    @property
    def system_errno(self) -> int: ...

    def execute(self, statements: str, bindings: Sequence[object] = ..., /) -> Cursor: ...

    def cursor(self) -> Cursor: ...

    def pragma(self, name: str, value: str | int = ..., /) -> Any: ...

    def last_insert_rowid(self) -> int: ...

    def config(self, op: int, value: int, /) -> int: ...

    def limit(self, id: int, newval: int, /) -> int: ...

    def set_busy_handler(self, callback: Callable[[int], bool], /) -> None: ...

    def set_progress_handler(self, callback: Callable[[], bool] | None, steps: int, /) -> None: ...

    def txn_state(self) -> int: ...

    def blob_open(
        self, database: str, table: str, column: str, rowid: int, *, writeable: bool
    ) -> Blob: ...

    def close(self, *, force: bool = ...) -> None: ...


class Blob(Protocol):
    """The methods of ``apsw.Blob`` that perdure uses."""

    def write(self, data: bytes, /) -> object: ...

    def close(self) -> None: ...


class Cursor(Protocol):
    """The methods of ``apsw.Cursor`` that perdure uses."""

    def execute(self, statements: str, bindings: Sequence[object] = ..., /) -> Cursor: ...

    def executemany(
        self, statements: str, sequenceofbindings: Iterable[Sequence[object]], /
    ) -> Cursor: ...

    def fetchone(self) -> Row | None: ...

    def close(self, *, force: bool) -> None: ...

    def fetchall(self) -> list[Row]: ...

    def __iter__(self) -> Iterator[Row]: ...


class SqlRows:
    """Runs statements on one connection; only one thread at a time may use it.

    `run` is for statements, and for results that are read completely. `run` uses one shared cursor,
    because creating a cursor costs as much as a statement. `rows` creates its own cursor.
    """

    def __init__(self, db: Connection) -> None:
        cursor = db.cursor()
        self.db = db
        self.run: Callable[..., Cursor] = cursor.execute
        self.run_many: Callable[..., Cursor] = cursor.executemany

    def row(self, sql: str, *values: object) -> Row | None:
        """Return the first row, if any. Use this method only for queries with at most one row."""
        found = self.run(sql, values).fetchall()
        return found[0] if found else None

    def rows(self, sql: str, *values: object) -> Iterator[Row]:
        """Yield all rows lazily."""
        return iter(self.db.execute(sql, values))

    def value(self, sql: str, *values: object) -> Any:
        """Return the first column of the first row; None if there is no row."""
        found = self.row(sql, *values)
        return None if found is None else found[0]


@contextmanager
def transaction(
    db: Connection, begin: str = "BEGIN IMMEDIATE", *, is_kept: bool = True
) -> Generator[None]:
    """Run the block in a transaction.

    If the block raises an error, or if `is_kept` is False, the transaction is rolled back.
    """
    db.execute(begin)
    try:
        yield
        if is_kept:
            db.execute("COMMIT")
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def hardened(name: str, flags: int) -> Connection:
    """Open a connection to the file (or URI) `name`, with SQLite's defenses."""
    db = cast("Connection", apsw.Connection(name, flags=flags))
    harden(db)
    return db


def harden(db: Connection) -> None:
    """Enable SQLite's defenses before reading anything from the file."""
    for switch, value in _SWITCHES:
        db.config(switch, value)
    for limit, value in LIMITS:
        db.limit(limit, value)
