"""Figures of a namespace, computed on the server without transferring or decompressing bodies."""

from __future__ import annotations

from typing import LiteralString

from perdure.session.ids import StreamId
from perdure.session.info import stored_name
from perdure.stores.maintenance.stats import (
    DAY_MS,
    Growth,
    StoreFigures,
    StreamSize,
    figures_of,
)
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.rows import info_of_row

_SIZES: LiteralString = """
SELECT s.id, s.kind, s.info, b.origin IS NOT NULL, s.head + 1, coalesce((
    SELECT sum(octet_length(e.body)) FROM perdure.entry AS e
    WHERE e.namespace = s.namespace AND e.stream = s.id
), 0)::bigint
FROM perdure.stream AS s
JOIN perdure.birth AS b ON b.namespace = s.namespace AND b.stream = s.id
WHERE s.namespace = %s
"""

# The last entry of a commit has its time, so each commit is counted up to its last entry.
_GROWTH: LiteralString = """
SELECT at / %s, sum(entries)::bigint, sum(bytes)::bigint FROM (
    SELECT max(commit_at) AS at, count(*) AS entries, sum(bytes) AS bytes FROM (
        SELECT stream, commit_at, octet_length(body) AS bytes,
            count(commit_at) OVER (PARTITION BY stream ORDER BY seq DESC) AS nth
        FROM perdure.entry WHERE namespace = %s
    ) AS numbered GROUP BY stream, nth
) AS commits
WHERE at >= %s GROUP BY 1
"""

_CONTENTS: LiteralString = """
SELECT count(*), coalesce(sum(size), 0)::bigint FROM perdure.blob WHERE namespace = %s
"""


async def measure(db: Database, since: int) -> StoreFigures:
    """Implement ``MaintenanceService.measure`` for the open namespace."""
    ns = db.namespace
    streams, days, ((contents, content_bytes),) = await db.ask(
        Statement(_SIZES, (ns,)),
        Statement(_GROWTH, (DAY_MS, ns, since)),
        Statement(_CONTENTS, (ns,)),
    )
    sizes = [
        StreamSize(StreamId(row[0]), row[1], stored_name(info_of_row(row[0], row[2])), *row[3:])
        for row in streams
    ]
    growth = Growth(0)  # the server omitted older ones
    for day, entries, total in days:
        growth.add(day * DAY_MS, entries, total)
    return StoreFigures(
        db.address, (figures_of(ns, sizes, growth.days, (contents, content_bytes)),)
    )
