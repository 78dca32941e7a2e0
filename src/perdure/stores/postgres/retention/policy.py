"""Retention: the policy, the protection of sessions, and removal of one session.

A removal is one transaction, under the lock of the stream's row. A concurrent fork or commit either
comes before the removal, or finds no session.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import LiteralString

import msgspec
import psycopg

from perdure.errors import SessionNotFound
from perdure.session.ids import MOST_SEQ, StreamId
from perdure.session.info import ORIGINS
from perdure.stores.maintenance.segments import created_at_of
from perdure.stores.postgres.append import LOCK
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.lists import forgetting, unlisted
from perdure.stores.postgres.reads import ask_streams
from perdure.stores.postgres.retention.content_gc import remove_unreferenced_of
from perdure.stores.postgres.retention.erase import NAMES, POSITIONS, forget_session
from perdure.stores.postgres.retention.quotas import counting
from perdure.stores.postgres.retention.usage import namespace_totals, resetting
from perdure.stores.postgres.rows import Row, stream_of
from perdure.stores.postgres.search.tables import forget, locking_mark
from perdure.stores.retention.policy import (
    KEY_WINDOW_MS,
    Hold,
    Holding,
    Retention,
    is_over,
    oldest_kept,
)

_POLICY: LiteralString = "SELECT policy FROM perdure.retention WHERE namespace = %s"

_KEEP_POLICY: LiteralString = """
INSERT INTO perdure.retention VALUES (%s, %s)
ON CONFLICT (namespace) DO UPDATE SET policy = excluded.policy
"""

_REWRITE_POLICY: LiteralString = """
INSERT INTO perdure.retention AS kept VALUES (%s, %s)
ON CONFLICT (namespace) DO UPDATE SET policy = kept.policy
"""

_NOW: LiteralString = "coalesce(%s::bigint, perdure.now_ms())"

_AT: LiteralString = f"SELECT {_NOW}"

_HOLDING: LiteralString = f"""
SELECT s.id, b.header, s.updated_at, s.head + 1,
    s.open_turn IS NOT NULL OR EXISTS (
        SELECT FROM perdure.open_question AS q JOIN perdure.entry AS e
            ON e.namespace = q.namespace AND e.stream = q.stream AND e.seq = q.seq
        WHERE q.namespace = s.namespace AND q.stream = s.id AND e.kind = 'turn_requested'
    ),
    s.owner IS NOT NULL AND s.until - {_NOW} BETWEEN 1 AND 86400000,
    EXISTS (
        SELECT FROM perdure.open_question AS q JOIN perdure.entry AS e
            ON e.namespace = q.namespace AND e.stream = q.stream AND e.seq = q.seq
        WHERE q.namespace = s.namespace AND q.stream = s.id AND e.kind = 'question'
    ),
    (SELECT coalesce(sum(octet_length(e.body)), 0)::bigint FROM perdure.entry AS e
     WHERE e.namespace = s.namespace AND e.stream = s.id),
    ARRAY(
        SELECT f.stream FROM perdure.birth AS f
        WHERE f.namespace = s.namespace AND f.origin = s.id ORDER BY f.stream
    )
FROM perdure.stream AS s
JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
WHERE s.namespace = %s
"""  # noqa: S608 - put together from constants

_ALL: LiteralString = _HOLDING + " AND s.kind = 'session' AND NOT s.is_erased ORDER BY b.n"

_HAS_OLDER: LiteralString = """
SELECT 1 FROM perdure.stream
WHERE namespace = %s AND kind = 'session' AND NOT is_erased AND created_at < %s LIMIT 1
"""

_HAS_IDLE: LiteralString = """
SELECT 1 FROM perdure.stream
WHERE namespace = %s AND kind = 'session' AND origin = %s AND is_active = %s AND updated_at < %s
    AND NOT is_erased LIMIT 1
"""

_ONE: LiteralString = _HOLDING + " AND s.id = %s"

_IS_ERASED: LiteralString = """
SELECT is_erased FROM perdure.stream WHERE namespace = %s AND id = %s
"""

_COUNTED: LiteralString = """
SELECT count(*) FILTER (WHERE salt IS NOT NULL), coalesce(sum(octet_length(body)), 0)::bigint
FROM perdure.entry WHERE namespace = %s AND stream = %s
"""

_REMOVE: LiteralString = "SELECT perdure.remove_stream(%s)"

_FORGET_KEYS: LiteralString = """
WITH gone AS (
    DELETE FROM perdure.idempotency WHERE namespace = %s AND at < %s RETURNING 1
) SELECT count(*) FROM gone
"""

_SIZE: LiteralString = "SELECT pg_database_size(current_database())"

_VACUUM: LiteralString = "VACUUM (SKIP_LOCKED) "

_TABLES: tuple[LiteralString, ...] = (
    "perdure.entry",
    "perdure.blob",
    "perdure.search",
    "perdure.search_part",
    "perdure.search_page",
    "perdure.search_vector",
    "perdure.state",
    "perdure.alias",
    "perdure.name_part",
    "perdure.idempotency",
    "perdure.birth",
    "perdure.stream",
)


_policy = msgspec.json.Decoder(Retention)


async def policy(db: Database) -> Retention:
    """Return the policy of the namespace."""
    (rows,) = await db.ask(Statement(_POLICY, (db.namespace,)))
    return _policy.decode(rows[0][0]) if rows else Retention()


async def set_policy(db: Database, policy: Retention) -> None:
    """Set the policy of the namespace."""
    await db.ask(Statement(_KEEP_POLICY, (db.namespace, msgspec.json.encode(policy))))


async def rewrite_policy(db: Database) -> None:
    """Write the policy of the namespace again, unchanged, to check that the store is writable."""
    empty = msgspec.json.encode(Retention())
    await db.ask(Statement(_REWRITE_POLICY, (db.namespace, empty)))


async def is_due(db: Database, policy: Retention, now: int | None) -> bool:
    """Implement ``RetentionService.is_due``; if `now` is None, use the server's time."""
    if policy.max_sessions is not None or policy.max_bytes is not None:
        found = await namespace_totals(db)
        limits = (found.sessions, policy.max_sessions), (found.body_bytes, policy.max_bytes)
        if any(is_over(*each) for each in limits):
            return True
    ((at,),) = (await db.ask(Statement(_AT, (now,))))[0]
    asked = [
        *_asking(_HAS_OLDER, [(db.namespace,)], oldest_kept(policy.max_age_s, at)),
        *_asking(_HAS_IDLE, _parts(db.namespace), oldest_kept(policy.max_idle_s, at)),
    ]
    return bool(asked) and any(await db.ask(*asked))


def _asking(
    sql: LiteralString, parts: Sequence[tuple[object, ...]], before: int | None
) -> list[Statement]:
    return [] if before is None else [Statement(sql, (*part, before)) for part in parts]


def _parts(namespace: str) -> list[tuple[object, ...]]:
    return [
        (namespace, origin, is_active) for origin in ORIGINS["all"] for is_active in (True, False)
    ]


async def holdings(db: Database, now: int | None) -> list[Holding]:
    """Implement ``RetentionService.holdings``; if `now` is None, use the server's time."""
    (rows,) = await db.ask(Statement(_ALL, (now, db.namespace)))
    return [_holding(row) for row in rows]


def _holding(row: Row) -> Holding:
    id_, header, active_at, entries, is_open, is_led, is_asked, size, forks = row
    hold: Hold | None = "turn" if is_open else "lease" if is_led else None
    return Holding(
        stream=StreamId(id_),
        created_at=created_at_of(header),
        active_at=active_at,
        entries=entries,
        bytes=size,
        forks=tuple(map(StreamId, forks)),
        hold=hold or ("question" if is_asked else None),
    )


async def holder(db: Database, stream: StreamId, now: int | None) -> Hold | None:
    """Implement ``RetentionService.holder``."""
    (rows,) = await db.ask(Statement(_ONE, (now, db.namespace, stream)))
    if not rows:
        raise SessionNotFound(stream)
    held = _holding(rows[0])
    return "forks" if held.forks else held.hold


async def remove(
    db: Database,
    stream: StreamId,
    now: int | None,
    *,
    is_erased: bool = False,
    expected_head: int | None = None,
) -> bool:
    """Implement ``RetentionService.remove``."""
    ns = db.namespace
    async with db.connection() as connected, connected.transaction():
        looking = Statement(_ONE, (now, ns, stream))
        erased = Statement(_IS_ERASED, (ns, stream))
        statements = [*locking_mark(ns), Statement(LOCK, (ns, [stream])), erased, looking]
        *_, status, rows = await run_statements(connected, ns, statements)
        if not rows or not status:  # another removal was first
            raise SessionNotFound(stream)
        held, was_erased = _holding(rows[0]), bool(status[0][0])
        if held.forks or held.hold is not None or (is_erased and not was_erased):
            return False
        if expected_head not in (None, held.entries - 1):
            return False
        await _remove_stream(connected, ns, stream, sessions=0 if was_erased else -1)
        return True


async def _remove_stream(db: Connected, namespace: str, stream: StreamId, *, sessions: int) -> None:
    own = (namespace, stream)
    everything = (*own, 0, MOST_SEQ)
    statements = [
        Statement(NAMES, everything),
        Statement(POSITIONS, everything),
        Statement(_COUNTED, own),
        ask_streams(namespace, [stream]),
    ]
    *found, streams = await run_statements(db, namespace, statements)
    names, positions, ((entries, size),) = found
    await forget(db, namespace, [row[0] for row in positions])
    await forget_session(db, namespace, stream)
    statements = [forgetting(namespace, stream, (0, MOST_SEQ)), Statement(_REMOVE, (stream,))]
    for row in streams:
        statements += unlisted(namespace, stream_of(row).state.info)
    await run_statements(db, namespace, statements)
    _, content_bytes = await remove_unreferenced_of(db, namespace, {row[0] for row in names})
    less = counting(namespace, sessions=sessions, entries=-entries, size=-size - content_bytes)
    await run_statements(db, namespace, [less, resetting(namespace)])


async def forget_keys(db: Database, before: int) -> int:
    """Implement ``RetentionService.forget_keys``."""
    (rows,) = await db.ask(Statement(_FORGET_KEYS, (db.namespace, before)))
    return int(rows[0][0])


async def forget_old_keys(db: Database, now: int | None) -> int:
    """Delete the keys older than `KEY_WINDOW_MS`; if `now` is None, use the server's time."""
    (rows,) = await db.ask(Statement(_AT, (now,)))
    return await forget_keys(db, rows[0][0] - KEY_WINDOW_MS)


async def give_back(db: Database) -> int:
    """Implement ``RetentionService.give_back``; return 0 if this login cannot run a vacuum.

    If the login has no permission to run a vacuum, the server frees the space by itself. A vacuum
    returns only the free pages at the end of a table.
    """
    connected = await db.connect_apart()
    try:
        await connected.execute("RESET ROLE")
        await connected.execute("SET statement_timeout = 0")
        before = await _size(connected)
        for table in _TABLES:
            await connected.execute(_VACUUM + table)
        return max(0, before - await _size(connected))
    except psycopg.errors.InsufficientPrivilege:
        return 0
    finally:
        await connected.close()


async def _size(db: Connected) -> int:
    row = await (await db.execute(_SIZE)).fetchone()
    return 0 if row is None else int(row[0])
