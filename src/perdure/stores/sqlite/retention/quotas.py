"""Quotas: the limits of a namespace; schema triggers maintain the counts.

SQLite itself rejects a commit of any process that exceeds a limit, inside the commit's transaction.
"""

from __future__ import annotations

from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.sqlite.append import namespace_number
from perdure.stores.sqlite.log.usage import namespace_totals
from perdure.stores.sqlite.rows import Tables

_LIMITS = """
SELECT max_sessions, max_entries, max_bytes FROM quota
WHERE namespace = (SELECT no FROM namespace WHERE name = ?)
"""


def quota_of(tables: Tables, namespace: str) -> tuple[Quota, Usage]:
    """Implement ``RetentionService.quota``."""
    limits = tables.row(_LIMITS, namespace) or (None, None, None)
    quota = Quota(max_sessions=limits[0], max_entries=limits[1], max_bytes=limits[2])
    found = namespace_totals(tables, namespace)
    size = found.body_bytes + found.packed_bytes
    return quota, Usage(found.sessions + found.flows, found.kept, size)


def set_quota(tables: Tables, namespace: str, quota: Quota) -> None:
    """Implement ``RetentionService.set_quota``; the caller has begun a transaction."""
    number = namespace_number(tables, namespace)
    tables.run("DELETE FROM quota WHERE namespace = ?", (number,))
    if not quota.is_empty:
        limits = (quota.max_sessions, quota.max_entries, quota.max_bytes)
        tables.run("INSERT INTO quota VALUES (?, ?, ?, ?, 0)", (number, *limits))
