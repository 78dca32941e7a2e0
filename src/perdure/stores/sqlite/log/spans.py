"""Spans: ranges of entry positions in a file that belong to one namespace.

Reads of a namespace in position order use the namespace's spans, so that entries of other
namespaces between the spans cost no time. In the SQL of this module, ``?1`` is the number of the
namespace and ``a`` is a span.
"""

from __future__ import annotations

from perdure.stores.sqlite.rows import NEWEST_SPAN, Tables

END = "coalesce((SELECT min(z.first) FROM span AS z WHERE z.first > a.first), 9223372036854775807)"
"""SQL for the position after the last position of a span."""

AFTER = """
a.namespace = ?1
AND a.first >= coalesce(
    (SELECT max(y.first) FROM span AS y WHERE y.namespace = ?1 AND y.first <= ?2), 0
)
"""
"""SQL condition for the namespace's span with position ``?2`` and the namespace's later spans."""


def begin_span(tables: Tables, namespace: int, first: int) -> None:
    """Start a span of `namespace` at `first`, unless the newest span belongs to `namespace`."""
    if tables.value(NEWEST_SPAN) != namespace:
        tables.run("INSERT INTO span VALUES (?, ?)", (first, namespace))
    tables.newest_namespace = namespace
