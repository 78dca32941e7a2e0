"""Find orphaned rows, which damage or manual changes leave in the file.

The search skips rows that a running erasure has not removed yet.
"""

from __future__ import annotations

from collections.abc import Iterator

import apsw

from perdure.stores.protocol import Problem
from perdure.stores.sqlite.log.spans import END
from perdure.stores.sqlite.rows import Tables, namespace_no

_ENTRIES = f"""
SELECT e.stream, count(*) FROM span AS a
CROSS JOIN entry AS e NOT INDEXED ON e.n >= a.first AND e.n < {END}
WHERE a.namespace = ? AND NOT EXISTS (SELECT 1 FROM stream WHERE no = e.stream)
    AND e.stream NOT IN (SELECT stream FROM erasing)
GROUP BY e.stream
"""  # noqa: S608 - put together from constants

_COMMITS = f"""
SELECT count(*) FROM span AS a CROSS JOIN commits AS c ON c.first >= a.first AND c.first < {END}
WHERE a.namespace = ? AND NOT EXISTS (SELECT 1 FROM entry WHERE n = c.first)
    AND c.first > (SELECT coalesce(max(position), 0) FROM removed)
"""  # noqa: S608 - put together from constants

# Entries outside of every span of their namespace, which no reader of it would find.
_MISPLACED = """
SELECT count(*) FROM stream AS s CROSS JOIN entry AS e ON e.stream = s.no
WHERE s.namespace = ? AND s.namespace IS NOT (
    SELECT a.namespace FROM span AS a WHERE a.first <= e.n ORDER BY a.first DESC LIMIT 1
)
"""

_BIRTHS = """
SELECT s.id FROM stream AS s
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?)
    AND NOT EXISTS (SELECT 1 FROM birth WHERE stream = s.no)
"""

_LEASES = """
SELECT s.id, s.owner, s.until, s.epoch, s.open_turn, p.seq
FROM stream AS s LEFT JOIN partial AS p ON p.stream = s.no
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?)
    AND (p.seq IS NOT NULL OR s.until <> 0 OR s.owner IS NOT NULL OR s.epoch < 0)
"""


def stray_problems(tables: Tables, namespace: str) -> Iterator[Problem]:
    """Yield every row whose parent row is missing, and every invalid lease."""
    try:
        own = namespace_no(tables, namespace)
        for number, count in tables.rows(_ENTRIES, own):
            text = f"{count} entries belong to session number {number}, which is not there"
            yield Problem(None, None, text)
        lost = tables.value(_COMMITS, own)
        if lost:
            yield Problem(None, None, f"of {lost} commits the first entry is not there")
        misplaced = tables.value(_MISPLACED, own)
        if misplaced:
            text = f"{misplaced} entries are in no span of the namespace: its feed leaves them out"
            yield Problem(None, None, text)
        for row in tables.rows(_BIRTHS, namespace):
            yield Problem(row[0], None, "its header is not there")
        for row in tables.rows(_LEASES, namespace):
            yield from _lease_problems(*row)
    except (apsw.Error, UnicodeDecodeError) as error:
        yield Problem(None, None, f"what belongs to what cannot be read ({error})")


def _lease_problems(
    stream: str, owner: str | None, until: int, epoch: int, open_turn: int | None, *rest: int | None
) -> Iterator[Problem]:
    (partial,) = rest
    if epoch < 0 or (epoch == 0 and owner is not None):
        yield Problem(
            stream, None, f"its lease is held by {owner} under epoch {epoch}, which is none"
        )
    if owner is None and until != 0:
        yield Problem(stream, None, "its lease is active, but has no owner")
    if partial is not None and open_turn is None:
        yield Problem(stream, partial, "a partial answer belongs to no open turn")
