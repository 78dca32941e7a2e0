"""Measures how long a fault interrupts turns, by the leases in the database."""

from __future__ import annotations

import asyncio
import sys
import time

import msgspec
import psycopg
from psycopg import AsyncConnection
from psycopg.rows import TupleRow

LOOK_S = 0.02
PATIENCE_S = 30.0

_HELD = """
SELECT s.id, s.epoch, s.open_turn FROM perdure.stream AS s
JOIN perdure.worker AS w ON w.owner = s.owner WHERE w.id = %s AND s.open_turn IS NOT NULL
"""
_NOW = "SELECT id, epoch, owner, open_turn FROM perdure.stream WHERE id = ANY(%s)"
_WORK = """
SELECT workflow_uuid, status, executor_id, created_at, updated_at
FROM perdure_work.workflow_status WHERE queue_partition_key = ANY(%s)
"""
_WORKERS = """
SELECT id, owner, state, running, clock_timestamp() - beat_at FROM perdure.worker
WHERE state <> 'dead' OR died_at > clock_timestamp() - interval '2 minutes'
"""
_LOCKS = """
SELECT l.locktype, l.classid, l.objid, l.granted, a.pid, a.state, a.application_name,
    clock_timestamp() - a.state_change, a.query
FROM pg_locks AS l JOIN pg_stat_activity AS a USING (pid)
WHERE l.locktype = 'advisory' OR NOT l.granted OR a.state = 'idle in transaction'
"""
_COUNTS = "SELECT name, n FROM perdure.cluster_count"
_NEWEST = "SELECT coalesce(max(n), 0) FROM perdure.entry"


class Held(msgspec.Struct, frozen=True):
    """A session whose turn ran on a worker at the moment of a fault."""

    session: str
    epoch: int
    turn: int


class Watcher:
    """An observer of the database, which reconnects after an interruption of the server."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._db: AsyncConnection[TupleRow] | None = None

    async def held(self, worker: str) -> list[Held]:
        """Return the sessions whose turns the worker runs now."""
        return [Held(*row) for row in await self._ask(_HELD, worker)]

    async def counts(self) -> dict[str, int]:
        """Return the cluster's counts of takeovers, false takeovers and requeued work."""
        return {str(name): int(n) for name, n in await self._ask(_COUNTS)}

    async def taken_over(self, held: list[Held]) -> list[float]:
        """Return for each session the seconds until a takeover or until its turn ended.

        The result omits a turn that ended before its worker stopped.
        """
        began = time.monotonic()
        left = {each.session: each for each in held}
        found: list[float] = []
        while left:
            for id, epoch, owner, turn in await self._ask(_NOW, list(left)):
                before = left[id]
                is_over = turn != before.turn
                if epoch > before.epoch and (owner is not None or is_over):
                    found.append(time.monotonic() - began)
                    del left[id]
                elif is_over:
                    del left[id]
            waited = time.monotonic() - began
            if waited > PATIENCE_S:
                await self._tell(list(left))
                return [*found, *(waited for _ in left)]
            await asyncio.sleep(LOOK_S)
        return found

    async def _tell(self, sessions: list[str]) -> None:
        """Print the database's rows about sessions that no worker took over."""
        for question, values in (
            (_NOW, (sessions,)),
            (_WORK, (sessions,)),
            (_WORKERS, ()),
            (_LOCKS, ()),
        ):
            for row in await self._ask(question, *values):
                sys.stderr.write(f"    {row}\n")

    async def goes_on(self) -> float:
        """Return the number of seconds until a new entry is written."""
        began = time.monotonic()
        newest = None
        while time.monotonic() - began < PATIENCE_S:
            ((now,),) = await self._ask(_NEWEST)
            newest = now if newest is None else newest
            if now > newest:
                break
            await asyncio.sleep(LOOK_S)
        return time.monotonic() - began

    async def close(self) -> None:
        """Close the connection."""
        if self._db is not None:
            await self._db.close()

    async def _ask(self, question: str, *values: object) -> list[TupleRow]:
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                if self._db is None or self._db.closed:
                    self._db = await AsyncConnection.connect(
                        self._address, autocommit=True, connect_timeout=2
                    )
                cursor = await self._db.execute(question.encode(), values)
                return await cursor.fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > until:
                    raise
                if self._db is not None:
                    await self._db.close()
                await asyncio.sleep(LOOK_S)
