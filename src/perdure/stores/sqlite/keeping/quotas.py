"""Quotas by triggers, which are there only while some namespace of the file has one.

So an append knows nothing of quotas: without one it does not a statement more, and with one it is
counted, and refused, by SQLite itself in the same transaction, whichever process it comes from.
"""

from __future__ import annotations

import msgspec

from perdure.stores.keeping.quotas import Quota, Usage
from perdure.stores.sqlite.appending import namespace_number
from perdure.stores.sqlite.quota_triggers import quota_triggers
from perdure.stores.sqlite.rows import Tables

_USAGE = """
SELECT (SELECT count(*) FROM stream WHERE namespace = ?1 AND status <> 'erased'),
    (SELECT count(*) FROM entry AS e JOIN stream AS s ON s.no = e.stream
     WHERE s.namespace = ?1 AND e.salt IS NOT NULL),
    (SELECT coalesce(sum(length(e.body)), 0) FROM entry AS e JOIN stream AS s ON s.no = e.stream
     WHERE s.namespace = ?1)
    + (SELECT coalesce(sum(length(content)), 0) FROM blob WHERE namespace = ?1)
"""

_KEPT = """
SELECT max_sessions, max_entries, max_bytes, sessions, entries, bytes FROM quota
WHERE namespace = (SELECT no FROM namespace WHERE name = ?)
"""


def quota_of(tables: Tables, namespace: str) -> tuple[Quota, Usage]:
    """What ``Limiting.quota`` promises."""
    row = tables.row(_KEPT, namespace)
    if row is not None:
        limits = Quota(max_sessions=row[0], max_entries=row[1], max_bytes=row[2])
        return limits, Usage(*row[3:])
    number = tables.value("SELECT no FROM namespace WHERE name = ?", namespace)
    return Quota(), _counted(tables, -1 if number is None else int(number))


def _counted(tables: Tables, number: int) -> Usage:
    return Usage(*(tables.row(_USAGE, number) or (0, 0, 0)))


def set_quota(tables: Tables, namespace: str, quota: Quota) -> None:
    """What ``Limiting.set_quota`` promises; within a transaction."""
    number = namespace_number(tables, namespace)
    tables.run("DELETE FROM quota WHERE namespace = ?", (number,))
    if not quota.is_empty:
        limits = (quota.max_sessions, quota.max_entries, quota.max_bytes)
        used = _counted(tables, number)
        tables.run(
            "INSERT INTO quota VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
            (number, *limits, *msgspec.structs.astuple(used)),
        )
    has_any = tables.value("SELECT 1 FROM quota LIMIT 1") is not None
    for name, _, sql in quota_triggers():
        if has_any:
            tables.run(sql.replace("CREATE TRIGGER", "CREATE TRIGGER IF NOT EXISTS", 1))
        else:
            tables.run(f"DROP TRIGGER IF EXISTS {name}")
