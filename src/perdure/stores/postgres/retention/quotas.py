"""Quotas: one row per namespace, updated in the transaction of each commit.

Each stream's row states whether its namespace has a quota, so an append without a quota needs no
extra query (migration 4). With a quota, commits to the namespace wait for each other, because each
locks the quota's row.
"""

from __future__ import annotations

from typing import LiteralString

from perdure.stores.postgres.database import Database, Statement, run_statements
from perdure.stores.postgres.retention.usage import namespace_totals
from perdure.stores.retention.quotas import Quota, Usage

_KEPT: LiteralString = """
SELECT max_sessions, max_entries, max_bytes, sessions, entries, bytes FROM perdure.quota
WHERE namespace = %s
"""

_USAGE: LiteralString = """
SELECT (SELECT count(*) FROM perdure.stream
        WHERE namespace = %s AND NOT is_erased AND kind <> 'memory'),
    (SELECT count(*) FROM perdure.entry WHERE namespace = %s AND salt IS NOT NULL),
    (SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM perdure.entry WHERE namespace = %s)
    + (SELECT coalesce(sum(size), 0)::bigint FROM perdure.blob WHERE namespace = %s)
"""

# Writers that already locked a stream finish before this; others wait for its end.
_LOCK: LiteralString = "LOCK TABLE perdure.stream IN EXCLUSIVE MODE"

_LIMIT: LiteralString = """
UPDATE perdure.stream SET is_limited = %s WHERE namespace = %s AND is_limited <> %s
"""

_FORGET: LiteralString = "DELETE FROM perdure.quota WHERE namespace = %s"

_KEEP: LiteralString = "INSERT INTO perdure.quota VALUES (%s, %s, %s, %s, %s, %s, %s)"

_COUNT: LiteralString = "SELECT perdure.count(%s, %s, %s, %s)"


LIFT = Statement("SELECT set_config('perdure.is_lifted', '1', true)")
"""Suspends quotas for the rest of the transaction."""


async def quota(db: Database) -> tuple[Quota, Usage]:
    """Implement ``RetentionService.quota``."""
    (rows,) = await db.ask(Statement(_KEPT, (db.namespace,)))
    if rows:
        row = rows[0]
        return Quota(max_sessions=row[0], max_entries=row[1], max_bytes=row[2]), Usage(*row[3:])
    found = await namespace_totals(db)
    size = found.body_bytes + found.content_bytes
    return Quota(), Usage(found.sessions + found.flows, found.kept, size)


async def set_quota(db: Database, quota: Quota) -> None:
    """Implement ``RetentionService.set_quota``."""
    ns = db.namespace
    is_limited = not quota.is_empty
    async with db.connection() as connected, connected.transaction():
        *_, used = await run_statements(
            connected,
            ns,
            [
                Statement(_LOCK),
                Statement(_LIMIT, (is_limited, ns, is_limited)),
                Statement(_FORGET, (ns,)),
                Statement(_USAGE, (ns,) * 4),
            ],
        )
        if is_limited:
            limits = (quota.max_sessions, quota.max_entries, quota.max_bytes)
            await run_statements(connected, ns, [Statement(_KEEP, (ns, *limits, *used[0]))])


def counting(namespace: str, *, sessions: int = 0, entries: int = 0, size: int = 0) -> Statement:
    """Return the statement that updates the counts of a quota, if any; `size` is in bytes."""
    return Statement(_COUNT, (namespace, sessions, entries, size))
