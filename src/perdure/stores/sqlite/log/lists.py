"""Read lists of sessions and of open turns, only as far as needed.

A list with a query or an id prefix is read in rounds. If there are only a few sessions whose name
or id may match, a round reads these sessions. If the name or id of many sessions may match, the
round reads more of the newest sessions. So a list with a query costs only as much as the cheaper of
two ways: reading all possible matches, or reading the newest sessions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from heapq import merge
from itertools import islice
from typing import Unpack

from perdure.errors.arguments import is_utf8
from perdure.session.ids import MOST_SEQ
from perdure.session.info import (
    LISTED_STATUSES,
    ORIGINS,
    OpenTurn,
    SessionInfo,
    SessionScope,
    Sought,
    is_found,
    is_sought,
)
from perdure.stores.access.lease_term import holder_at
from perdure.stores.access.sqlite_connection import Cursor, Row
from perdure.stores.name_parts import LONG_NAME, end_of, rounds, sought_parts
from perdure.stores.sqlite.rows import (
    INFO_COLUMNS,
    Tables,
    described_row,
    info_of_row,
    namespace_no,
)

_LAST_ID = "\U0010ffff"
"""Sorts after every stream id."""

_SESSIONS = f"""
SELECT {INFO_COLUMNS}, b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.kind = 'session' AND s.namespace = (SELECT no FROM namespace WHERE name = ?)
    AND s.origin = ? AND s.status = ? AND (s.updated_at, s.id) < (?, ?)
ORDER BY s.updated_at DESC, s.id DESC
"""  # noqa: S608 - put together from constants

_SESSIONS_OF_FOLDER = _SESSIONS.replace("s.status = ?", "s.cwd = ?")

_WITH_PART = """
SELECT stream FROM name_part WHERE namespace = ? AND part >= ? AND part < ? LIMIT ?
"""

_WITH_LONG_NAME = "SELECT stream FROM name_part WHERE namespace = ? AND part = ? LIMIT ?"

_WITH_PREFIX = "SELECT no FROM stream WHERE namespace = ? AND id >= ? AND id < ? LIMIT ?"

_SESSION = f"""
SELECT {INFO_COLUMNS}, b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.no = ? AND s.kind = 'session' AND s.namespace = ?
"""  # noqa: S608 - put together from constants


def sessions(
    tables: Tables,
    namespace: str,
    *,
    limit: int | None = 50,
    scope: SessionScope = "listed",
    cwd: str | None = None,
    query: str | None = None,
    **sought: Unpack[Sought],
) -> list[SessionInfo]:
    """Return sessions, newest activity first."""
    prefix = sought.get("id_prefix") or ""
    if not (is_utf8(cwd or "") and is_utf8(prefix)):
        return []

    def fitting(rows: Iterator[Row]) -> Iterator[SessionInfo]:
        infos = ((info_of_row(row), row[15]) for row in rows)
        near = (each for each in infos if is_found(each[0], cwd, query))
        whole = (described_row(*each) for each in near if each[0].origin in ORIGINS[scope])
        return (info for info in whole if is_sought(info, sought))

    with closing(_newest_first(tables, namespace, scope, cwd, sought)) as newest_first:
        parts = sought_parts(query)
        if not parts and not prefix:
            return list(islice(fitting(newest_first), limit))
        found: list[SessionInfo] = []
        for reach in rounds():
            few = _few(tables, namespace, parts, prefix, reach)
            if few is not None:
                return list(islice(fitting(iter(few)), limit))
            rows = list(islice(newest_first, reach))
            found += fitting(iter(rows))
            if len(rows) < reach or (limit is not None and len(found) >= limit):
                return found[:limit]
        raise AssertionError("rounds have no end")


def _newest_first(
    tables: Tables, namespace: str, scope: SessionScope, cwd: str | None, sought: Sought
) -> Generator[Row]:
    """Yield the sessions in `scope`, and in the folder `cwd` if it is given, newest activity first.

    The generator reads nothing before the first session is requested.
    """
    after = sought.get("after") or (MOST_SEQ, _LAST_ID)
    sql = _SESSIONS if cwd is None else _SESSIONS_OF_FOLDER
    cursors: list[Cursor] = [
        tables.db.execute(sql, (namespace, *of, *after))
        for origin in ORIGINS[scope]
        for of in ([(origin, each) for each in LISTED_STATUSES] if cwd is None else [(origin, cwd)])
    ]
    try:
        yield from merge(*cursors, key=_place, reverse=True)
    finally:
        for cursor in cursors:
            cursor.close(force=True)  # an unfinished cursor would hold its snapshot


def _place(row: Row) -> tuple[int, str]:
    return row[5], row[1]


def _few(
    tables: Tables, namespace: str, parts: Sequence[bytes], prefix: str, most: int
) -> list[Row] | None:
    """Return the sessions whose ids begin with `prefix`, or whose names may contain all `parts`.

    The sessions with the newest activity come first. Returns None if neither `prefix` nor `parts`
    limits the sessions to `most`.
    """
    number = namespace_no(tables, namespace) or 0  # of no namespace
    streams = _prefixed(tables, number, prefix, most) if prefix else None
    if streams is None and parts:
        streams = _named(tables, number, parts, most)
    if streams is None:
        return None
    found = [row for stream in streams if (row := tables.row(_SESSION, stream, number))]
    return sorted(found, key=_place, reverse=True)


def _prefixed(tables: Tables, namespace: int, prefix: str, most: int) -> set[int] | None:
    """Return the streams whose ids begin with `prefix`; None if there are more than `most`."""
    rows = list(tables.rows(_WITH_PREFIX, namespace, prefix, prefix + _LAST_ID, most + 1))
    return {row[0] for row in rows} if len(rows) <= most else None


def _named(tables: Tables, namespace: int, parts: Sequence[bytes], most: int) -> set[int] | None:
    """Return streams whose names may contain the rarest of `parts`; None if more than `most`."""
    long = list(tables.rows(_WITH_LONG_NAME, namespace, LONG_NAME, most + 1))
    fewest: list[Row] | None = None
    for part in reversed(parts):  # names differ more at their ends than at their beginnings
        fewer = most if fewest is None else len(fewest) - 1
        rows = list(tables.rows(_WITH_PART, namespace, part, end_of(part), fewer + 1))
        if len(rows) <= fewer:
            fewest = rows
        if not rows:
            break
    if fewest is None or len(long) > most:
        return None
    return {row[0] for row in (*fewest, *long)}


_OPEN_TURNS = f"""
SELECT {INFO_COLUMNS}, b.header, s.owner, s.until
FROM stream AS s INDEXED BY stream_open_turn CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.namespace = (SELECT no FROM namespace WHERE name = ?) AND s.open_turn IS NOT NULL
    AND s.kind = 'session' AND s.status <> 'erased'
"""  # noqa: S608 - put together from constants


def open_turns(tables: Tables, namespace: str, now: int) -> list[OpenTurn]:
    """Implement ``NamespaceReader.open_turns``."""
    return [
        OpenTurn(described_row(info_of_row(row), row[15]), holder_at(now, row[16], row[17]))
        for row in tables.rows(_OPEN_TURNS, namespace)
    ]
