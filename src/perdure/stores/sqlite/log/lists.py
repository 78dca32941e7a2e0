"""Lists of sessions, read only as far as needed.

A list with a query reads in rounds. Each round reads the sessions whose name may match the query if
they are few, else more of the newest sessions. So a list costs the cheaper of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice

from perdure.session.ids import MOST_SEQ
from perdure.session.info import (
    LISTED_STATUSES,
    ORIGINS,
    SessionInfo,
    SessionScope,
    Sought,
    is_found,
    is_sought,
)
from perdure.stores.name_parts import LONG_NAME, end_of, rounds, sought_parts
from perdure.stores.sqlite.rows import (
    INFO_COLUMNS,
    Cursor,
    Row,
    Tables,
    described_row,
    info_of_row,
    is_text,
)

_LAST_ID = "\U0010ffff"
"""Sorts after every stream id."""

_SESSIONS = f"""
SELECT {INFO_COLUMNS}, b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.kind = 'session' AND s.namespace = (SELECT no FROM namespace WHERE name = ?)
    AND s.origin = ? AND s.status = ? AND (s.updated_at, s.id) < (?, ?)
ORDER BY s.updated_at DESC, s.id DESC
"""  # noqa: S608 - put together from constants

_SESSIONS_OF_FOLDER = f"""
SELECT {INFO_COLUMNS}, b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.kind = 'session' AND s.namespace = (SELECT no FROM namespace WHERE name = ?)
    AND s.origin = ? AND s.cwd = ? AND (s.updated_at, s.id) < (?, ?)
ORDER BY s.updated_at DESC, s.id DESC
"""  # noqa: S608 - put together from constants

_WITH_PART = """
SELECT stream FROM name_part WHERE namespace = ? AND part >= ? AND part < ? LIMIT ?
"""

_WITH_LONG_NAME = "SELECT stream FROM name_part WHERE namespace = ? AND part = ? LIMIT ?"

_SESSION = f"""
SELECT {INFO_COLUMNS}, b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.no = ? AND s.kind = 'session' AND s.namespace = ?
"""  # noqa: S608 - put together from constants


def sessions(
    tables: Tables,
    namespace: str,
    *,
    limit: int | None,
    scope: SessionScope,
    cwd: str | None,
    query: str | None,
    sought: Sought,
) -> list[SessionInfo]:
    """Return sessions, newest activity first."""
    if cwd is not None and not is_text(cwd):
        return []

    def fitting(rows: Iterator[Row]) -> Iterator[SessionInfo]:
        infos = ((info_of_row(row), row[15]) for row in rows)
        near = (each for each in infos if is_found(each[0], cwd, query))
        whole = (described_row(*each) for each in near if each[0].origin in ORIGINS[scope])
        return (info for info in whole if is_sought(info, sought))

    cursors = _cursors(tables, namespace, scope, cwd, sought)
    newest_first = merge(*cursors, key=_place, reverse=True)
    try:
        parts = sought_parts(query)
        if not parts:
            return list(islice(fitting(newest_first), limit))
        found: list[SessionInfo] = []
        for reach in rounds():
            named = _named(tables, namespace, parts, reach)
            if named is not None:
                return list(islice(fitting(iter(named)), limit))
            rows = list(islice(newest_first, reach))
            found += fitting(iter(rows))
            if len(rows) < reach or (limit is not None and len(found) >= limit):
                return found[:limit]
        raise AssertionError("rounds have no end")
    finally:
        for cursor in cursors:
            cursor.close(force=True)  # an unfinished cursor would hold its snapshot


def _cursors(
    tables: Tables, namespace: str, scope: SessionScope, cwd: str | None, sought: Sought
) -> list[Cursor]:
    """Return cursors over the sessions of each origin (and status), newest activity first."""
    after = sought.get("after") or (MOST_SEQ, _LAST_ID)
    sql = _SESSIONS if cwd is None else _SESSIONS_OF_FOLDER
    return [
        tables.db.execute(sql, (namespace, *of, *after))
        for origin in ORIGINS[scope]
        for of in ([(origin, each) for each in LISTED_STATUSES] if cwd is None else [(origin, cwd)])
    ]


def _place(row: Row) -> tuple[int, str]:
    return row[5], row[1]


def _named(tables: Tables, namespace: str, parts: Sequence[bytes], most: int) -> list[Row] | None:
    """Return the sessions whose names or ids may have all of `parts`, newest activity first.

    None if the index has more than `most` rows of the rarest part.
    """
    number = tables.value("SELECT no FROM namespace WHERE name = ?", namespace)
    long = list(tables.rows(_WITH_LONG_NAME, number, LONG_NAME, most + 1))
    fewest: list[Row] | None = None
    for part in reversed(parts):  # names differ more at their ends than at their beginnings
        fewer = most if fewest is None else len(fewest) - 1
        rows = list(tables.rows(_WITH_PART, number, part, end_of(part), fewer + 1))
        if len(rows) <= fewer:
            fewest = rows
        if not rows:
            break
    if fewest is None or len(long) > most:
        return None
    streams = {row[0] for row in (*fewest, *long)}
    found = [row for stream in streams if (row := tables.row(_SESSION, stream, number))]
    return sorted(found, key=_place, reverse=True)
