"""The function of FTS5 that tells how often each phrase of a query occurs in a row.

FTS5's own ranking counts over the whole file, all namespaces together; perdure's
(``session.search.ranking``) is computed from these counts.
"""

from __future__ import annotations

from apsw import FTS5ExtensionApi

from perdure.stores.sqlite.rows import Connection

NAME = "perdure_counts"

_TEXT = 0
"""The column the words are in."""


def add_function(db: Connection) -> None:
    """Make ``perdure_counts(search, first, end)`` known to `db`."""
    db.register_fts5_function(NAME, _counts)


def _counts(row: FTS5ExtensionApi, first: int, end: int) -> str:
    """How many words the text has, and how often the phrases `first` to `end` occur in it."""
    counts = [len(row.phrase_column_offsets(phrase, _TEXT)) for phrase in range(first, end)]
    return " ".join(map(str, [row.column_size(_TEXT), *counts]))
