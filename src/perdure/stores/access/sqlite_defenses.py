"""SQLite's defenses against a file that another program may have written."""

from __future__ import annotations

from typing import Protocol

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


class Configurable(Protocol):
    """The part of ``apsw.Connection`` that the defenses use."""

    def config(self, op: int, value: int, /) -> int: ...

    def limit(self, id: int, newval: int, /) -> int: ...


def harden(db: Configurable) -> None:
    """Enable SQLite's defenses before reading anything from the file."""
    for switch, value in _SWITCHES:
        db.config(switch, value)
    for limit, value in LIMITS:
        db.limit(limit, value)
