"""The raw drivers: the least that a program would do with SQLite or PostgreSQL directly.

The drivers are apsw on one thread, or psycopg with await. They write encoded bytes, one commit per
turn, with the same durability as the store that they are compared with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import apsw
from psycopg import AsyncConnection

from perdure.stores.access.sqlite_connection import Connection

BUSY_MS = 60_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    n INTEGER PRIMARY KEY, session INTEGER, seq INTEGER, body BLOB, UNIQUE (session, seq)
)
"""

_SERVER_SCHEMA = """
CREATE TABLE IF NOT EXISTS raw (
    n bigserial PRIMARY KEY, session bigint, seq bigint, body bytea, UNIQUE (session, seq)
)
"""


class RawLog:
    """One table of bodies by session and seq. Each session has one writer."""

    def __init__(self, path: Path, durability: str) -> None:
        self.db = cast("Connection", apsw.Connection(str(path)))
        self.db.execute(f"PRAGMA busy_timeout = {BUSY_MS}")
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {durability}")
        self.db.execute(_SCHEMA)
        self._cursor = self.db.cursor()
        self._seqs: defaultdict[int, int] = defaultdict(int)

    def append(self, bodies: Sequence[bytes], session: int = 1) -> None:
        """Append `bodies` in one commit."""
        first = self._seqs[session]
        self._seqs[session] += len(bodies)
        self._cursor.execute("BEGIN IMMEDIATE")
        self._cursor.executemany(
            "INSERT INTO entry (session, seq, body) VALUES (?, ?, ?)",
            [(session, seq, body) for seq, body in enumerate(bodies, first)],
        )
        self._cursor.execute("COMMIT")

    def newest(self, count: int) -> list[bytes]:
        """Return the bodies of the newest entries, oldest first."""
        rows = self.db.execute(
            "SELECT body FROM entry WHERE session = 1 ORDER BY seq DESC LIMIT ?", (count,)
        )
        return [row[0] for row in rows][::-1]

    def close(self) -> None:
        """Close the file after copying the write-ahead log into it."""
        self.db.close()


class RawServer:
    """One table of bodies, written with psycopg alone."""

    def __init__(self, db: AsyncConnection[tuple[Any, ...]]) -> None:
        self._db = db
        self._seqs: defaultdict[int, int] = defaultdict(int)

    @classmethod
    async def connect(cls, address: str) -> RawServer:
        """Connect, and create the table if it does not exist."""
        db = await AsyncConnection.connect(address, autocommit=True)
        async with db.transaction():
            await db.execute("SELECT pg_advisory_xact_lock(7)")
            await db.execute("SET LOCAL client_min_messages = warning")
            await db.execute(_SERVER_SCHEMA)
        return cls(db)

    async def append(self, bodies: Sequence[bytes], session: int = 1) -> None:
        """Append `bodies` in one transaction."""
        seqs = self._next(session, len(bodies))
        rows = [(session, seq, body) for seq, body in zip(seqs, bodies, strict=True)]
        sql = "INSERT INTO raw (session, seq, body) VALUES (%s, %s, %s)"
        async with self._db.transaction(), self._db.cursor() as cursor:
            await cursor.executemany(sql, rows)

    async def append_at_once(self, bodies: Sequence[bytes], session: int = 2) -> None:
        """Append `bodies` in one statement."""
        sql = """
        INSERT INTO raw (session, seq, body)
        SELECT %s, r.seq, r.body FROM unnest(%s::bigint[], %s::bytea[]) AS r (seq, body)
        """
        values = (session, self._next(session, len(bodies)), list(bodies))
        await self._db.execute(sql, values, prepare=True)

    async def newest(self, count: int) -> list[bytes]:
        """Return the bodies of the newest entries, oldest first."""
        sql = "SELECT body FROM raw WHERE session = 1 ORDER BY seq DESC LIMIT %s"
        cursor = await self._db.execute(sql, (count,), binary=True, prepare=True)
        return [row[0] for row in await cursor.fetchall()][::-1]

    async def close(self) -> None:
        """Close the connection."""
        await self._db.close()

    def _next(self, session: int, count: int) -> list[int]:
        first = self._seqs[session]
        self._seqs[session] += count
        return list(range(first, first + count))
