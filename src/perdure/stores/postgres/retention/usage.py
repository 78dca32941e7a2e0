"""The size of a namespace: stored counts up to a position, plus the data after this position.

A commit does not update the counts, so that commits of a namespace do not wait for each other at
one row. A read that had to count many rows after the position of the stored counts stores the new
counts. An erasure or removal resets the counts.
"""

from __future__ import annotations

from contextlib import suppress
from typing import LiteralString, NamedTuple

from perdure.errors import PerdureError
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.rows import HORIZON, SETTLE

MOST_BEHIND = 256
"""If a read had to count more rows than this, the read stores the new counts."""

_LAST = 2**63 - 1

_FIGURES: LiteralString = """
SELECT pg_database_size(current_database()),
    (SELECT max(version) FROM perdure.schema_version),
    current_setting('server_version')
"""

# A missing row counts as one with counts of zero.
_KEPT: LiteralString = """
    SELECT coalesce(max(generation), 0) AS generation, coalesce(max(position), 0) AS position,
        coalesce(max(streams), 0) AS streams, coalesce(max(sessions), 0) AS sessions,
        coalesce(max(flows), 0) AS flows, coalesce(max(entries), 0) AS entries,
        coalesce(max(kept), 0) AS kept, coalesce(max(body_bytes), 0) AS body_bytes,
        coalesce(max(content_bytes), 0) AS content_bytes
    FROM perdure.usage WHERE namespace = %s
"""

_BEHIND: LiteralString = """
s AS (
    SELECT count(*) AS streams,
        count(*) FILTER (WHERE s.kind = 'session' AND NOT s.is_erased) AS sessions,
        count(*) FILTER (WHERE s.kind = 'flow' AND NOT s.is_erased) AS flows
    FROM perdure.birth AS b
    JOIN perdure.stream AS s ON s.namespace = b.namespace AND s.id = b.stream
    WHERE b.namespace = %s AND b.n > 0 AND b.n > (SELECT position FROM u) AND b.n <= %s
), e AS (
    SELECT count(*) AS entries, count(e.salt) AS kept,
        coalesce(sum(octet_length(e.body)), 0) AS body_bytes
    FROM perdure.entry AS e
    WHERE e.namespace = %s AND e.n > 0 AND e.n > (SELECT position FROM u) AND e.n <= %s
), c AS (
    SELECT count(*) AS contents, coalesce(sum(c.size), 0) AS content_bytes
    FROM perdure.blob AS c
    WHERE c.namespace = %s AND c.n > (SELECT position FROM u) AND c.n <= %s
)
SELECT u.generation, u.position, s.streams + e.entries + c.contents, u.streams + s.streams,
    u.sessions + s.sessions, u.flows + s.flows, u.entries + e.entries, u.kept + e.kept,
    (u.body_bytes + e.body_bytes)::bigint, (u.content_bytes + c.content_bytes)::bigint
FROM u, s, e, c
"""

_HELD: LiteralString = f"WITH u AS ({_KEPT}), {_BEHIND}"

_NOTHING: LiteralString = """
    SELECT 0::bigint AS generation, 0::bigint AS position, 0::bigint AS streams,
        0::bigint AS sessions, 0::bigint AS flows, 0::bigint AS entries, 0::bigint AS kept,
        0::bigint AS body_bytes, 0::bigint AS content_bytes
"""

_COUNTED: LiteralString = f"WITH u AS ({_NOTHING}), {_BEHIND}"

_BEGIN: LiteralString = "INSERT INTO perdure.usage VALUES (%s) ON CONFLICT DO NOTHING"

# A concurrent removal changes the generation: then nothing is stored.
_KEEP: LiteralString = """
UPDATE perdure.usage SET position = %s, streams = %s, sessions = %s, flows = %s, entries = %s,
    kept = %s, body_bytes = %s, content_bytes = %s
WHERE namespace = %s AND generation = %s AND position = %s
"""

_RESET: LiteralString = """
INSERT INTO perdure.usage VALUES (%s, 1)
ON CONFLICT (namespace) DO UPDATE SET generation = usage.generation + 1, position = 0, streams = 0,
    sessions = 0, flows = 0, entries = 0, kept = 0, body_bytes = 0, content_bytes = 0
"""


class NamespaceTotals(NamedTuple):
    """Totals of a namespace. `sessions`, `flows` and `kept` exclude erased data.

    Units: bytes of bodies, and of contents.
    """

    streams: int
    sessions: int
    flows: int
    entries: int
    kept: int
    body_bytes: int
    content_bytes: int


async def namespace_totals(db: Database) -> NamespaceTotals:
    """Return the current totals of the namespace.

    The totals include entries added after the counts were last stored.
    """
    (counted,) = await db.ask(asking_held(db.namespace))
    if counted[0][2] > MOST_BEHIND:
        with suppress(PerdureError):  # a read-only or busy server: the next read stores them
            await _keep(db)
    return NamespaceTotals(*counted[0][3:])


def asking_held(namespace: str, upto: int = _LAST) -> Statement:
    """Return the query for the usage of the namespace: the stored counts plus all later entries.

    The result has the generation and the position of the stored counts, the number of rows after
    this position, and the fields of `NamespaceTotals`. Each reset increases the generation.
    """
    return Statement(_HELD, (namespace, *(namespace, upto) * 3))


def asking_kept(namespace: str) -> Statement:
    """Return the query for the stored usage of the namespace, without later entries.

    The result has the generation, the position of the stored counts, and the fields of
    `NamespaceTotals`.
    """
    return Statement(_KEPT, (namespace,))


def asking_counted(namespace: str, upto: int) -> Statement:
    """Return a query like that of `asking_held`, but with all counts computed from the log."""
    return Statement(_COUNTED, (namespace, upto) * 3)


async def _keep(db: Database) -> None:
    """Store the counts of all entries up to a position before which no new entry can appear."""
    ns = db.namespace
    *_, ((upto,),) = await db.ask(Statement(_BEGIN, (ns,)), Statement(SETTLE), Statement(HORIZON))
    ((row,),) = await db.ask(asking_held(ns, upto))
    generation, position, _, *counts = row
    if upto > position:  # a commit can be delayed between reading its mark and locking it
        await db.ask(Statement(_KEEP, (upto, *counts, ns, generation, position)))


def resetting(namespace: str) -> Statement:
    """Return the statement that resets the counts, after an erasure or removal."""
    return Statement(_RESET, (namespace,))


async def database_figures(db: Database) -> tuple[int, int, str]:
    """Return the size of the database in bytes, its schema version and the server's version."""
    (rows,) = await db.ask(Statement(_FIGURES))
    (found,) = rows
    return found[0], found[1], found[2]
