"""The raw driver: what a program that knows SQLite would do, and nothing else.

apsw called directly on one thread, pre-encoded bytes, one commit a turn, the same durability.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import apsw

from perdure.stores.sqlite.rows import Connection

_SCHEMA = """
CREATE TABLE entry (
    n INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, body BLOB, UNIQUE (session, seq)
)
"""


class RawLog:
    """One table of bodies by session and seq."""

    def __init__(self, path: Path, durability: str) -> None:
        self.db = cast("Connection", apsw.Connection(str(path)))
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {durability}")
        self.db.execute(_SCHEMA)
        self._cursor = self.db.cursor()
        self._seq = 0

    def append(self, bodies: Sequence[bytes]) -> None:
        """One commit."""
        first = self._seq
        self._seq += len(bodies)
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.executemany(
            "INSERT INTO entry (session, seq, body) VALUES (1, ?, ?)", enumerate(bodies, first)
        )
        self._cursor.execute("COMMIT")

    def newest(self, count: int) -> list[bytes]:
        """The bodies of the newest entries, oldest first."""
        rows = self.db.execute(
            "SELECT body FROM entry WHERE session = 1 ORDER BY seq DESC LIMIT ?", (count,)
        )
        return [row[0] for row in rows][::-1]

    def close(self) -> None:
        """Let go of the file, its write-ahead log copied into it."""
        self.db.close()
