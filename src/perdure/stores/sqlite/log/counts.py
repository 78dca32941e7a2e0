"""Verify the derived data of a namespace: counts, open entries, and the indexes of lists.

Counts, open entries and list indexes can be computed from the log, but a received file may contain
wrong values.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from perdure.session.memory.open_entries import CLOSING, OPENING
from perdure.stores.protocol import Problem
from perdure.stores.sqlite.log.usage import totals_of
from perdure.stores.sqlite.rows import NEXT_POSITION, Tables, namespace_no

_COUNTED = """
SELECT (SELECT count(*) FROM stream WHERE namespace = ?1),
    (SELECT count(*) FROM stream
     WHERE namespace = ?1 AND kind = 'session' AND status <> 'erased'),
    (SELECT count(*) FROM stream
     WHERE namespace = ?1 AND kind = 'flow' AND status <> 'erased'),
    count(e.n), count(e.salt), coalesce(sum(length(e.body)), 0),
    (SELECT coalesce(sum(size), 0) FROM blob WHERE namespace = ?1),
    (SELECT coalesce(sum(length(content)), 0) FROM blob WHERE namespace = ?1)
FROM stream AS s CROSS JOIN entry AS e ON e.stream = s.no WHERE s.namespace = ?1
"""

_NAMES = (
    "sessions, flows and memories",
    "sessions that are not erased",
    "flows that are not erased",
    "entries",
    "entries that are not erased",
    "bytes of bodies",
    "bytes of contents",
    "bytes of contents as they are stored",
)

# Entries that are open only in the log or only in the stored table.
_OPEN_ENTRIES = """
WITH open AS (
    SELECT q.stream, q.seq FROM stream AS s CROSS JOIN entry AS q ON q.stream = s.no
    WHERE s.namespace = ?1 AND q.kind IN (?2, ?3, ?4, ?5, ?6) AND q.kind > 31 AND q.run IS NULL
        AND q.salt IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM entry AS a WHERE a.stream = q.stream
                AND a.kind IN (?7, ?8, ?9, ?10, ?11, ?12, ?13) AND a.kind > 31
                AND a.run IS NULL AND a.ref = q.seq)
), kept AS (SELECT stream, seq FROM open_question WHERE namespace = ?1)
SELECT stream, seq, 'is missing in' FROM (SELECT * FROM open EXCEPT SELECT * FROM kept)
UNION ALL
SELECT stream, seq, 'does not belong in' FROM (SELECT * FROM kept EXCEPT SELECT * FROM open)
LIMIT 100
"""


def count_problems(tables: Tables, namespace: str) -> Iterator[Problem]:
    """Yield every wrong count, and every entry whose open or closed state is wrong."""
    try:
        number = namespace_no(tables, namespace)
        if number is not None:
            yield from _wrong_counts(tables, number)
            yield from _wrong_open_entries(tables, number)
        yield from _wrong_indexes(tables)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Problem(None, None, f"what the namespace holds cannot be counted ({error})")


def _wrong_counts(tables: Tables, number: int) -> Iterator[Problem]:
    places = [row[0] for row in tables.rows("SELECT position FROM counted")]
    next_one = tables.value(NEXT_POSITION) or 0
    if len(places) != 1 or not 0 <= places[0] < next_one:
        text = "the position up to which entries are counted is wrong: the next are not counted"
        yield Problem(None, None, text)
    kept = totals_of(tables, number)
    if kept is None:
        yield Problem(None, None, "the counts of the namespace are missing")
        return
    truth = tables.row(_COUNTED, number) or ()
    for name, value, given in zip(_NAMES, kept, truth, strict=True):
        if value != given:
            text = f"the count of {name} is kept as {value}, it should be {given}"
            yield Problem(None, None, text)


def _wrong_open_entries(tables: Tables, number: int) -> Iterator[Problem]:
    kinds = [tables.kind_number(kind) or -1 for kind in (*OPENING, *CLOSING)]
    for stream, seq, is_what in list(tables.rows(_OPEN_ENTRIES, number, *kinds)):
        yield Problem(
            None, None, f"entry {seq} of session number {stream} {is_what} the list of open entries"
        )


def _wrong_indexes(tables: Tables) -> Iterator[Problem]:
    """Yield the faults in the data that session lists use."""
    for row in list(tables.rows("PRAGMA integrity_check(stream)")):
        if row[0] != "ok":
            yield Problem(None, None, f"an index of the sessions is damaged: {row[0]}")
