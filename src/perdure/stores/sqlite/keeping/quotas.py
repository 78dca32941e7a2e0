"""Quotas by triggers, which are there only while some namespace of the file has one.

So an append knows nothing of quotas: without one it does not a statement more, and with one it is
counted, and refused, by SQLite itself in the same transaction, whichever process it comes from.
"""

from __future__ import annotations

import msgspec

from perdure.stores.keeping.quotas import Quota, Usage
from perdure.stores.sqlite.appending import namespace_number
from perdure.stores.sqlite.faults import QUOTA
from perdure.stores.sqlite.rows import Tables

_PREFIX = "quota_"

_OF_ENTRY = "(SELECT namespace FROM stream WHERE no = NEW.stream)"


def _checks(of: str, *added: str) -> str:
    """What refuses a row that takes the namespace `of` over one of the limits on what is added."""
    return "".join(
        f"""
    SELECT RAISE(ABORT, '{QUOTA}{what}') FROM quota
    WHERE namespace = {of} AND {what} > max_{what} AND NOT is_lifted;"""  # noqa: S608 - put together from constants
        for what in added
    )


_TRIGGERS = {
    "stream_made": f"""AFTER INSERT ON stream BEGIN
    UPDATE quota SET sessions = sessions + 1 WHERE namespace = NEW.namespace;
    {_checks("NEW.namespace", "sessions")} END""",  # noqa: S608 - put together from constants
    "stream_gone": """AFTER UPDATE OF status ON stream
WHEN OLD.status <> 'erased' AND NEW.status = 'erased' BEGIN
    UPDATE quota SET sessions = sessions - 1 WHERE namespace = NEW.namespace; END""",
    "stream_swept": """AFTER UPDATE OF namespace ON stream
WHEN OLD.namespace <> NEW.namespace BEGIN
    UPDATE quota SET
        entries = entries - (
            SELECT count(*) FROM entry WHERE stream = NEW.no AND salt IS NOT NULL),
        bytes = bytes - (SELECT coalesce(sum(length(body)), 0) FROM entry WHERE stream = NEW.no)
    WHERE namespace = OLD.namespace; END""",
    "entry_made": f"""AFTER INSERT ON entry BEGIN
    UPDATE quota SET entries = entries + (NEW.salt IS NOT NULL),
        bytes = bytes + length(NEW.body)
    WHERE namespace = {_OF_ENTRY};
    {_checks(_OF_ENTRY, "entries", "bytes")} END""",  # noqa: S608 - put together from constants
    "entry_gone": f"""AFTER UPDATE OF body ON entry WHEN NEW.salt IS NULL BEGIN
    UPDATE quota SET entries = entries - (OLD.salt IS NOT NULL),
        bytes = bytes - length(OLD.body) + length(NEW.body)
    WHERE namespace = {_OF_ENTRY}; END""",  # noqa: S608 - put together from constants
    "blob_made": f"""AFTER INSERT ON blob BEGIN
    UPDATE quota SET bytes = bytes + length(NEW.content) WHERE namespace = NEW.namespace;
    {_checks("NEW.namespace", "bytes")} END""",  # noqa: S608 - put together from constants
    "blob_gone": """AFTER DELETE ON blob BEGIN
    UPDATE quota SET bytes = bytes - length(OLD.content) WHERE namespace = OLD.namespace; END""",
}

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
    for name, sql in _TRIGGERS.items():
        if has_any:
            tables.run(f"CREATE TRIGGER IF NOT EXISTS {_PREFIX}{name} {sql}")
        else:
            tables.run(f"DROP TRIGGER IF EXISTS {_PREFIX}{name}")
