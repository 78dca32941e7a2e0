"""The size of a namespace: the counts that triggers maintain, plus the entries not counted yet."""

from __future__ import annotations

from typing import NamedTuple

from perdure.stores.sqlite.rows import Tables, namespace_no

_COUNTED = """
SELECT streams, sessions, flows, entries, kept, body_bytes, content_bytes, packed_bytes
FROM usage WHERE namespace = ?
"""

_BEHIND = """
SELECT count(*), count(e.salt), coalesce(sum(length(e.body)), 0)
FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
WHERE e.n > (SELECT max(position) FROM counted) AND s.namespace = ?
"""


class NamespaceTotals(NamedTuple):
    """Totals of a namespace.

    `streams` and `entries` include erased ones; `sessions` and `flows` do not. `kept` is the number
    of entries that were not erased.
    Units: `body_bytes` is the size of the bodies, `content_bytes` is the size of the contents, and
    `packed_bytes` is the size of the contents in their stored form.
    """

    streams: int = 0
    sessions: int = 0
    flows: int = 0
    entries: int = 0
    kept: int = 0
    body_bytes: int = 0
    content_bytes: int = 0
    packed_bytes: int = 0


def namespace_totals(tables: Tables, namespace: str) -> NamespaceTotals:
    """Return the current totals of a namespace.

    The call reads one row and at most some hundred entries.
    """
    number = namespace_no(tables, namespace)
    return (
        totals_of(tables, int(number)) or NamespaceTotals()
        if number is not None
        else NamespaceTotals()
    )


def totals_of(tables: Tables, number: int) -> NamespaceTotals | None:
    """Return the stored totals of the namespace `number`; None if there are none."""
    row = tables.row(_COUNTED, number)
    if row is None:
        return None
    entries, kept, size = tables.row(_BEHIND, number) or (0, 0, 0)
    found = NamespaceTotals(*row)
    return found._replace(
        entries=found.entries + entries,
        kept=found.kept + kept,
        body_bytes=found.body_bytes + size,
    )
