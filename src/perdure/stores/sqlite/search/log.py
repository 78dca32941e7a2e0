"""The log of a namespace of an SQLite file, as the search index reads it.

In the index, the position of a text is the position of its entry in the log. The position of a
stream's initial title is the negative of the stream's number.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TypeVar

import msgspec

from perdure.session.search.parts import sizes
from perdure.session.search.searchable import KINDS
from perdure.stores.access.sqlite_connection import Cursor, Row
from perdure.stores.scan import Found, found_entry, found_title
from perdure.stores.search.rows import NO_END, Mark, NextTexts, Progress
from perdure.stores.search.sqlite_tables import loose_count, stored_mark
from perdure.stores.sqlite.branches import is_on_branch
from perdure.stores.sqlite.log.spans import AFTER, END
from perdure.stores.sqlite.rows import Tables, header_in

AT_ONCE = 200
"""Maximum number of texts in memory at a time."""

_COLUMNS = "e.n, e.stream, e.seq, e.run, e.ref, e.at, e.kind, e.v, e.body"

_IS_FOUND = "s.namespace = ?1 AND e.kind IN ({kinds}) AND s.kind = 'session' "

# After a position, up to another.
_ENTRIES = f"""
SELECT {_COLUMNS} FROM span AS a
CROSS JOIN entry AS e ON e.n > max(a.first - 1, ?2) AND e.n < min({END}, ?3 + 1)
CROSS JOIN stream AS s ON s.no = e.stream
WHERE {AFTER} AND a.first <= ?3 AND {_IS_FOUND}
"""  # noqa: S608 - put together from constants

_POSITIONS = _ENTRIES.replace(_COLUMNS, "e.n")

_ENTRIES_AT = f"""
SELECT {_COLUMNS} FROM json_each(?2) AS position CROSS JOIN entry AS e ON e.n = position.value
CROSS JOIN stream AS s ON s.no = e.stream WHERE {_IS_FOUND}
"""  # noqa: S608 - put together from constants

_TITLES = """
SELECT s.no, s.id, b.header FROM stream AS s CROSS JOIN birth AS b ON b.stream = s.no
WHERE s.namespace = ? AND s.no > ? AND s.no <= ? AND s.kind = 'session' ORDER BY s.no
"""

# The last position, and the newest stream of the namespace.
_NEWEST = """
SELECT (SELECT coalesce(max(n), 0) FROM entry),
    (SELECT coalesce(max(no), 0) FROM stream WHERE namespace = ?)
"""

_BEHIND = f"""
SELECT coalesce(sum(min({END}, ?3 + 1) - max(a.first, ?2 + 1)), 0) FROM span AS a
WHERE {AFTER} AND a.first <= ?3
"""  # noqa: S608 - put together from constants

_STREAM_FAR = "SELECT no FROM stream WHERE namespace = ? AND no > ? ORDER BY no LIMIT 1 OFFSET ?"

_STREAMS_BEHIND = "SELECT count(*) FROM stream WHERE namespace = ? AND no > ?"

_STREAM = "SELECT no, leaf FROM stream WHERE namespace = ? AND id = ?"

T = TypeVar("T")


def progress(tables: Tables, namespace: int) -> Progress:
    """Return how far the index of the namespace is behind the log."""
    mark = stored_mark(tables, namespace).usable
    entry, stream = _newest(tables, namespace)
    behind = int(tables.value(_BEHIND, namespace, mark.entry, entry))
    behind += int(tables.value(_STREAMS_BEHIND, namespace, mark.stream))
    return Progress(behind, entry, stream, loose_count(tables, namespace))


def _newest(tables: Tables, namespace: int) -> tuple[int, int]:
    entry, stream = tables.row(_NEWEST, namespace) or (0, 0)
    return entry, stream


class SqliteLog:
    """`IndexedLog` of one namespace of a file, in one snapshot or transaction."""

    def __init__(self, tables: Tables, namespace: int) -> None:
        self._tables = tables
        self._namespace = namespace
        self._subjects: dict[int, str | None] = {}

    @property
    def address(self) -> str:
        return self._tables.value("SELECT file FROM pragma_database_list LIMIT 1")

    async def compute(self, work: Callable[[], T]) -> T:
        return work()  # on the thread of the connection

    async def next_texts(self, mark: Mark) -> NextTexts:
        newest, newest_stream = _newest(self._tables, self._namespace)
        upto = self._some_streams(mark.stream, newest_stream)
        titles = self.titles(mark.stream, upto)
        texts = [(each, mark._replace(stream=-each.position)) for each in titles]
        sql, most = _ENTRIES + "ORDER BY a.first, e.n LIMIT ?4", sizes.BATCH_ROWS
        rows = self._rows(sql, mark.entry, newest, most)
        read = size = 0
        after = mark._replace(stream=upto)
        version, _, _, *counts = after
        for row in rows:
            read += 1
            after, size = Mark(version, row[0], upto, *counts), size + len(row[-1])
            found = self._found_in(row)
            if found is not None:
                texts.append((found, after))
            if size > sizes.BATCH_BYTES:
                return NextTexts(texts, after)
        return NextTexts(texts, after if read == most else after._replace(entry=newest))

    async def behind(self, mark: Mark) -> AsyncIterator[list[Found]]:
        for texts in (self.entries(mark.entry), self.titles(mark.stream)):
            while some := list(islice(texts, AT_ONCE)):
                yield some

    async def missing(self, mark: Mark, indexed: Container[int]) -> AsyncIterator[list[Found]]:
        rows = self._rows(f"{_POSITIONS} ORDER BY a.first, e.n", 0, mark.entry)
        entries = (row[0] for row in rows if row[0] not in indexed)
        titles = (each.position for each in self.titles(0, mark.stream))
        for positions in (entries, (each for each in titles if each not in indexed)):
            while some := list(islice(positions, AT_ONCE)):
                yield await self.texts_at(some)

    async def texts_at(self, positions: Sequence[int]) -> list[Found]:
        entries = msgspec.json.encode([each for each in positions if each >= 0]).decode()
        found = list(self._found(self._rows(_ENTRIES_AT, entries).fetchall()))
        for position in positions:
            if position < 0:
                found += self.titles(-position - 1, -position)
        return found

    async def on_branch(self, texts: Sequence[Found]) -> list[bool]:
        return list(map(self._is_on_branch, texts))

    def entries(self, after: int, upto: int = NO_END) -> Iterator[Found]:
        """Yield the searchable entries at positions after `after`."""
        return self._found(self._rows(_ENTRIES, after, upto))

    def titles(self, after: int, upto: int = NO_END) -> Iterator[Found]:
        """Yield the initial titles of streams with numbers after `after`."""
        for number, stream, header in self._tables.rows(_TITLES, self._namespace, after, upto):
            found = found_title(number, header_in(header, stream))
            if found is not None:
                yield found

    def _some_streams(self, after: int, newest: int) -> int:
        """Return the last number of the next `BATCH_ROWS` streams, or `newest` if fewer remain."""
        row = self._tables.row(_STREAM_FAR, self._namespace, after, sizes.BATCH_ROWS - 1)
        return max(after, newest if row is None else int(row[0]))

    def _rows(self, sql: str, *values: int | str) -> Cursor:
        sql = sql.replace("{kinds}", self._kinds)
        return self._tables.db.execute(sql, (self._namespace, *values))

    @cached_property
    def _kinds(self) -> str:
        """The numbers of the searchable kinds, as SQL."""
        numbers = map(self._tables.kind_number, KINDS)
        return ", ".join([str(number) for number in numbers if number is not None])

    def _found(self, rows: Iterable[Row]) -> Iterator[Found]:
        return (found for row in rows if (found := self._found_in(row)) is not None)

    def _found_in(self, row: Row) -> Found | None:
        stream = self._tables.stream_id(row[1])
        return found_entry(row[0], self._tables.entry(stream, row[2:]), self._subject(row[1]))

    def _subject(self, stream: int) -> str | None:
        if stream not in self._subjects:
            header = self._tables.value("SELECT header FROM birth WHERE stream = ?", stream)
            self._subjects[stream] = header_in(header, self._tables.stream_id(stream)).subject
        return self._subjects[stream]

    def _is_on_branch(self, found: Found) -> bool:
        target = found.target
        if target is None:
            return True
        tables = self._tables
        number, leaf = tables.row(_STREAM, self._namespace, found.stream) or (None, None)
        place = None if number is None else tables.place(number, target)
        node = None if place is None else tables.node_of(*place)
        if node is None or leaf is None:
            return False
        return is_on_branch(tables, node, tables.node_at(leaf))
