"""`LimitService` on rows that all workers of a database share; times are from the server's clock.

Each statement that locks rows of other workers is sent alone, in a message of a few hundred bytes,
which libpq sends at once. So a process that is stopped while it sends a statement never keeps a
lock on the rows of other workers. Only the message that changes the slots of a worker can be long,
because it contains all changed slots; it locks only rows of the worker itself.
"""

from __future__ import annotations

import hashlib
import logging
import math
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString
from uuid import uuid4

import msgspec

from perdure.errors import QueueFull, StoreUnavailable
from perdure.stores.cluster.limits import Limit, LimitInfo, Slot
from perdure.stores.postgres.cluster.liveness import SILENCE_S
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.rows import Row, struct_of

KNOWN_S = 0.5
"""How long limits are used before they are read again."""

LATER_S = 60
"""The longest wait that an error suggests to its caller."""

_LIMITS: LiteralString = """
SELECT subject, turns, per_minute, waiting FROM perdure.work_limit
WHERE coalesce(turns, per_minute, waiting) IS NOT NULL
"""

_SET: LiteralString = """
INSERT INTO perdure.work_limit (subject, turns, per_minute, waiting)
VALUES (%s, %s::int, %s::int, %s::int)
ON CONFLICT (subject) DO UPDATE
SET turns = excluded.turns, per_minute = excluded.per_minute, waiting = excluded.waiting
RETURNING subject
"""

_INFOS: LiteralString = """
SELECT l.subject, l.turns, l.per_minute, l.waiting, u.running,
    CASE WHEN u.running >= l.turns THEN u.held ELSE 0 END,
    CASE WHEN u.running >= l.turns
        THEN extract(epoch FROM clock_timestamp() - u.oldest_at)::float8 END,
    coalesce(greatest(0, extract(epoch FROM
        l.sent_at + make_interval(secs => 60.0 / l.per_minute) - clock_timestamp())), 0)::float8
FROM perdure.work_limit AS l CROSS JOIN LATERAL (
    SELECT count(*) FILTER (WHERE s.granted_at IS NOT NULL) AS running,
        count(*) FILTER (WHERE s.granted_at IS NULL) AS held,
        min(s.asked_at) FILTER (WHERE s.granted_at IS NULL) AS oldest_at
    FROM perdure.work_slot AS s JOIN perdure.worker AS w ON w.id = s.worker AND w.state <> 'dead'
    WHERE l.subject = ANY(s.subjects)
) AS u
WHERE coalesce(l.turns, l.per_minute, l.waiting) IS NOT NULL
ORDER BY l.subject
"""

_STORED: LiteralString = """
SELECT s.id, s.granted_at IS NOT NULL, w.state <> 'dead' FROM perdure.work_slot AS s
JOIN perdure.worker AS w ON w.id = s.worker
WHERE s.worker = %s
"""

_CHANGE: LiteralString = "SELECT perdure.change_slots(%s, %s::text[], %s::json)"

_GRANT: LiteralString = "SELECT perdure.grant_slots(%s)"

_PERMIT: LiteralString = "SELECT perdure.permit_request(%s::text[])"

_TAKE: LiteralString = "SELECT waited, most, oldest_s FROM perdure.take_place(%s, %s, %s)"

_LEAVE: LiteralString = "SELECT perdure.leave_place(%s, %s)"

_HAS_WORKER: LiteralString = """
SELECT EXISTS (
    SELECT FROM perdure.worker WHERE state <> 'dead' AND %s = ANY(namespaces)
        AND beat_at > clock_timestamp() - make_interval(secs => %s)
)
"""

_log = logging.getLogger(__name__)


class PostgresLimits:
    """`LimitService` on the connections of one store."""

    def __init__(self, database: Database, namespace: str) -> None:
        self._db = database
        self._namespace = namespace
        self._known: Sequence[Limit] = ()
        self._known_until = 0.0

    async def limits(self) -> Sequence[Limit]:
        if time.monotonic() >= self._known_until:
            (rows,) = await self._db.ask(Statement(_LIMITS))
            self._known = tuple(struct_of(Limit, row) for row in rows)
            self._known_until = time.monotonic() + KNOWN_S
        return self._known

    async def set_limit(self, limit: Limit) -> None:
        values = (limit.subject, limit.turns, limit.per_minute, limit.waiting)
        await self._call(Statement(_SET, values))
        self._known_until = 0.0

    async def infos(self) -> Sequence[LimitInfo]:
        (rows,) = await self._db.ask(Statement(_INFOS))
        return tuple(
            LimitInfo(
                limit=struct_of(Limit, limit),
                running=running,
                held=held,
                oldest_s=oldest_s,
                next_request_s=next_request_s,
            )
            for *limit, running, held, oldest_s, next_request_s in rows
        )

    async def sync_slots(self, worker: str, slots: Sequence[Slot]) -> set[str]:
        (rows,) = await self._db.ask(Statement(_STORED, (worker,)))
        stored = {id: is_granted for id, is_granted, _ in rows}
        granted = {id for id, is_granted, is_alive in rows if is_granted and is_alive}
        gone = list(stored.keys() - {slot.id for slot in slots})
        new = [
            slot
            for slot in slots
            if slot.id not in stored or (slot.running and not stored[slot.id])
        ]
        if gone or new:
            content = msgspec.json.encode(new).decode()
            await self._call(Statement(_CHANGE, (worker, gone, content)))
        if gone or not all(slot.running or slot.id in granted for slot in slots):
            granted |= {row[0] for row in await self._call(Statement(_GRANT, (worker,)))}
        return granted.difference(gone) | {slot.id for slot in new if slot.running}

    async def permit_request(self, subjects: Iterable[str]) -> float:
        rows = await self._call(Statement(_PERMIT, (list(subjects),)))
        return float(rows[0][0])

    async def has_worker(self) -> bool:
        values = (self._namespace, SILENCE_S)
        (rows,) = await self._db.ask(Statement(_HAS_WORKER, values))
        return bool(rows[0][0])

    @asynccontextmanager
    async def room(self) -> AsyncGenerator[str | None]:
        subject = f"namespace:{self._namespace}"
        if not any(each.subject == subject and each.waiting for each in await self.limits()):
            yield None
            return
        key = f"place:{uuid4()}"
        hashed = hashlib.sha256(key.encode()).digest()  # as a commit stores its key
        is_taken = True
        try:
            rows = await self._call(Statement(_TAKE, (self._db.namespace, subject, hashed)))
            for waiting, most, oldest_s in rows:
                if waiting >= most:
                    is_taken = False
                    retry_s = min(max(math.ceil(oldest_s), 1), LATER_S)
                    raise QueueFull(
                        self._namespace,
                        waiting,
                        most,
                        retry_s,
                        has_worker=await self.has_worker(),
                    )
            yield key
        finally:
            if is_taken:
                await self._leave(hashed)

    async def _leave(self, hashed: bytes) -> None:
        try:
            await self._call(Statement(_LEAVE, (self._db.namespace, hashed)))
        except StoreUnavailable as error:
            _log.info("a place is left for a minute: %s", error)

    async def _call(self, statement: Statement) -> list[Row]:
        """Run one `statement` as a transaction of its own, sent in one message.

        The transaction has no namespace and, behind a pooler, no connection settings.
        """
        async with self._db.connection() as db:
            return await (await db.execute(*statement, binary=True)).fetchall()
