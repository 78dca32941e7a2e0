"""Insert rows of the table ``entry``.

A large body is written into its row after the row was inserted. SQLite copies a value that is bound
to a statement, copies it again into the row, and keeps the first copy with the statement. Writing a
large body into its row after the insert avoids both copies that SQLite makes of a bound value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import apsw

from perdure.stores.sqlite.rows import Tables

_INSERT = "INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

LARGE_BYTES = 2**20
"""Size from which on a body is written after its row."""


def insert_entries(tables: Tables, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert `rows`.

    The first value of each row is the position, and the last value is the body.
    """
    large = [(row[0], row[-1]) for row in rows if len(row[-1]) >= LARGE_BYTES]
    if not large:
        tables.run_many(_INSERT, rows)
        return
    tables.run_many(_INSERT, [(*row[:-1], _room(row[-1])) for row in rows])
    for position, body in large:
        opened = tables.db.blob_open("main", "entry", "body", position, writeable=True)
        with closing(opened) as room:
            room.write(body)


def _room(body: bytes) -> object:
    """Return the value to bind for `body`: the body itself, or zero bytes of the same length."""
    return apsw.zeroblob(len(body)) if len(body) >= LARGE_BYTES else body
