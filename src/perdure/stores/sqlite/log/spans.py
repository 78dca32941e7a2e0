"""Spans: stretches of the entries of a file that belong to one namespace.

What reads a namespace in the order of positions goes by its spans, so that it costs nothing for the
entries of others between them. The SQL here names the number of the namespace ``?1``, a span ``a``.
"""

from __future__ import annotations

from perdure.stores.sqlite.rows import NEWEST_SPAN, Tables

END = "coalesce((SELECT min(z.first) FROM span AS z WHERE z.first > a.first), 9223372036854775807)"
"""The position behind a span."""

AFTER = """
a.namespace = ?1
AND a.first >= coalesce(
    (SELECT max(y.first) FROM span AS y WHERE y.namespace = ?1 AND y.first <= ?2), 0
)
"""
"""Of the spans of a namespace that in which the position ``?2`` lies, and those behind it."""


def begin_span(tables: Tables, namespace: int, first: int) -> None:
    """Note that entries of `namespace` follow those of another from position `first` on."""
    if tables.value(NEWEST_SPAN) != namespace:
        tables.run("INSERT INTO span VALUES (?, ?)", (first, namespace))
    tables.newest_namespace = namespace
