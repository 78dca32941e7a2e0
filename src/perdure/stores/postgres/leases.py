"""Leases and partial answers; each operation checks and changes a row in one statement.

Times come from the server's clock, which all hosts share, unless the handle has its own clock.
"""

from __future__ import annotations

from typing import LiteralString

from perdure.errors import Erased, LeaseHeld, LeaseLost, SessionNotFound
from perdure.session.ids import StreamId
from perdure.session.info import OpenTurn, with_description
from perdure.stores.access.lease_term import LONGEST_LEASE_MS
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.rows import Row, header_of_row, info_of_row, is_text
from perdure.stores.protocol import Lease, LeaseRequest

_NOW: LiteralString = "coalesce(%s::bigint, perdure.now_ms())"

_ACQUIRE: LiteralString = f"""
UPDATE perdure.stream SET epoch = epoch + 1, owner = %s, until = {_NOW} + %s
WHERE namespace = %s AND id = %s AND NOT is_erased
    AND (owner IS NULL OR owner = %s OR until - {_NOW} NOT BETWEEN 1 AND 86400000)
RETURNING epoch, until
"""  # noqa: S608 - put together from constants

_RENEW: LiteralString = f"""
UPDATE perdure.stream SET owner = %s, until = {_NOW} + %s
WHERE namespace = %s AND id = %s AND epoch = %s AND epoch > 0
RETURNING until
"""  # noqa: S608 - put together from constants

_RELEASE: LiteralString = """
UPDATE perdure.stream SET owner = NULL, until = 0
WHERE namespace = %s AND id = %s AND epoch = %s AND epoch > 0
"""

_TAKE: LiteralString = "SELECT perdure.take_lease(%s, %s, %s, %s, %s, %s, %s)"

# Locked, so that the end of the turn comes either before it, or after it and deletes it.
_PUT_PARTIAL: LiteralString = """
INSERT INTO perdure.partial
SELECT s.namespace, s.id, %s, %s FROM (
    SELECT namespace, id FROM perdure.stream
    WHERE namespace = %s AND id = %s AND epoch = %s AND epoch > 0 AND open_turn IS NOT NULL
    FOR NO KEY UPDATE
) AS s
ON CONFLICT (namespace, stream) DO UPDATE SET seq = excluded.seq, content = excluded.content
"""

_HOLDER: LiteralString = """
SELECT owner, until, epoch, is_erased FROM perdure.stream WHERE namespace = %s AND id = %s
"""

# A lease longer than the maximum is invalid (``access.lease_term``).
_OPEN_TURNS: LiteralString = f"""
SELECT s.id, s.info, b.header,
    CASE WHEN s.until - {_NOW} BETWEEN 1 AND 86400000
    THEN s.owner END
FROM perdure.stream AS s
JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
WHERE s.namespace = %s AND s.open_turn IS NOT NULL AND s.kind = 'session' AND NOT s.is_erased
"""  # noqa: S608 - put together from constants

_NORMAL: LiteralString = "SELECT set_config('synchronous_commit', 'off', true)"


async def acquire(db: Database, stream: StreamId, wanted: LeaseRequest, now: int | None) -> Lease:
    """Acquire the lease of a stream if it is free.

    Raises: LeaseHeld, SessionNotFound, Erased.
    """
    acquiring = acquiring_lease(db.namespace, stream, wanted, now)
    while True:
        taken, holder = await _change(db, stream, acquiring)
        if taken:
            return Lease(stream, wanted.owner, *taken[0])
        if holder[3]:
            raise Erased(stream)
        if holder[0] is not None:
            raise LeaseHeld(stream, holder[0], holder[1])
        # It was released between the two statements.


def acquiring_lease(
    namespace: str, stream: StreamId, wanted: LeaseRequest, now: int | None
) -> Statement:
    """Return the statement that acquires the lease of a stream if it is free.

    Shape: one row with the epoch and the end of the lease; no row if the lease is not free.
    """
    ttl_ms = min(wanted.ttl_ms, LONGEST_LEASE_MS)
    values = (wanted.owner, now, ttl_ms, namespace, stream, wanted.dead_owner, now)
    return Statement(_ACQUIRE, values)


def lease_taken(
    namespace: str, stream: StreamId, epoch: int, wanted: LeaseRequest, now: int | None
) -> Statement:
    """Return the statement that acquires the lease of a stream whose epoch must be `epoch`.

    Shape: one row with the end of the lease. If the epoch has changed or the lease is not free, the
    statement raises ``faults.STALE``.
    """
    ttl_ms = min(wanted.ttl_ms, LONGEST_LEASE_MS)
    values = (namespace, stream, epoch, wanted.owner, ttl_ms, wanted.dead_owner, now)
    return Statement(_TAKE, values)


def releasing_lease(namespace: str, stream: StreamId, epoch: int) -> Statement:
    """Return the statement that releases the lease with `epoch`, if no other owner acquired it."""
    return Statement(_RELEASE, (namespace, stream, epoch))


async def renew(db: Database, lease: Lease, ttl_ms: int, now: int | None) -> Lease:
    """Extend `lease`. Raises: LeaseLost, SessionNotFound."""
    ttl_ms = min(ttl_ms, LONGEST_LEASE_MS)
    values = (lease.owner, now, ttl_ms, db.namespace, lease.stream, lease.epoch)
    renewed, holder = await _change(db, lease.stream, Statement(_RENEW, values))
    if not renewed:
        raise LeaseLost(lease.stream, lease.epoch, holder[2])
    return Lease(lease.stream, lease.owner, lease.epoch, renewed[0][0])


async def release(db: Database, lease: Lease) -> None:
    """Release `lease`; do nothing if another owner has acquired it. Raises: SessionNotFound."""
    await _change(db, lease.stream, releasing_lease(db.namespace, lease.stream, lease.epoch))


async def open_turns(db: Database, now: int | None) -> list[OpenTurn]:
    """Implement ``NamespaceReader.open_turns``."""
    db.check_usable()
    (rows,) = await db.ask(Statement(_OPEN_TURNS, (now, db.namespace)))
    return [
        OpenTurn(with_description(info_of_row(id_, info), header_of_row(id_, header)), holder)
        for id_, info, header, holder in rows
    ]


async def put_partial(db: Database, lease: Lease, seq: int, content: bytes) -> None:
    """Store the received part of an answer, if a turn is open. Raises: LeaseLost.

    The durability is always "normal": if a power cut loses the part, the answer is requested again.
    """
    values = (seq, content, db.namespace, lease.stream, lease.epoch)
    _, holder = await _change(db, lease.stream, Statement(_NORMAL), Statement(_PUT_PARTIAL, values))
    if holder[2] != lease.epoch or lease.epoch <= 0:
        raise LeaseLost(lease.stream, lease.epoch, holder[2])


async def _change(db: Database, stream: StreamId, *statements: Statement) -> tuple[list[Row], Row]:
    """Run `statements`; return the result of the last one, and the lease owner afterwards."""
    db.check_usable()
    if not is_text(stream):
        raise SessionNotFound(stream)
    *_, changed, holder = await db.ask_once(*statements, Statement(_HOLDER, (db.namespace, stream)))
    if not holder:
        raise SessionNotFound(stream)
    return changed, holder[0]
