"""Triggers of schemas 4 to 7 for namespaces with a quota, to recognize such files.

Since schema 8 the triggers of the schema count for every namespace (``migrations/0008_lists.sql``).
"""

from __future__ import annotations

from collections.abc import Iterator

from perdure.stores.sqlite.faults import QUOTA

NEWEST = 7
"""The newest schema that may have these triggers."""

_PREFIX = "quota_"

_OF_ENTRY = "(SELECT namespace FROM stream WHERE no = NEW.stream)"


def _checks(of: str, *added: str) -> str:
    """Return the checks that reject a row if namespace `of` would exceed a limit."""
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


def quota_triggers() -> Iterator[tuple[str, str, str]]:
    """Return name, table and SQL of each trigger, as SQLite stores them."""
    for name, sql in _TRIGGERS.items():
        table = sql.partition(" ON ")[2].split()[0]
        yield _PREFIX + name, table, f"CREATE TRIGGER {_PREFIX}{name} {sql}"
