"""The tables of a search index in an SQLite file.

The tables contain the index parts with their pages, the texts that are not yet in a part, and the
index mark. ``stores/sqlite/migrations`` documents the columns. ``search_text.id`` is part * 8192 +
the number of the block's first text. A file with index tables also has a table ``namespace`` with a
number for each namespace.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import msgspec

from perdure.session.search.parts.blocks import Block, block_rows
from perdure.session.search.parts.builder import Part
from perdure.session.search.parts.lookup import Head, Looked, Read
from perdure.session.search.parts.pages import Page, after
from perdure.session.search.parts.postings import MOST_TEXTS
from perdure.stores.access.sqlite_connection import SqlRows
from perdure.stores.search.rows import (
    NO_END,
    BlockStart,
    LooseRow,
    Mark,
    PartRow,
    Span,
    part_row,
)

TABLES = """
CREATE TABLE search_loose (
    namespace INTEGER NOT NULL,
    n         INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    length    INTEGER NOT NULL,
    filters   TEXT NOT NULL,
    said      TEXT NOT NULL,
    PRIMARY KEY (namespace, n)
) STRICT, WITHOUT ROWID;

CREATE TABLE search_text (
    id     INTEGER PRIMARY KEY,
    n      INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    length INTEGER NOT NULL,
    said   BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_text_by_position ON search_text (n);

CREATE TABLE search_part (
    no        INTEGER PRIMARY KEY,
    size      INTEGER NOT NULL,
    last      INTEGER NOT NULL,
    first_at  INTEGER NOT NULL,
    last_at   INTEGER NOT NULL,
    namespace INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX search_part_by_namespace ON search_part (namespace);

CREATE TABLE search_page (
    part  INTEGER NOT NULL,
    first TEXT NOT NULL,
    body  BLOB NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_page_by_first ON search_page (part, first);

CREATE TABLE search_mark (
    namespace INTEGER PRIMARY KEY,
    version   INTEGER NOT NULL,
    entry     INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    parts     INTEGER NOT NULL,
    forgotten INTEGER NOT NULL
) STRICT;
"""
"""The same tables as in the migrations of an SQLite store, for a file that has only an index."""

_MARK = "SELECT version, entry, stream, parts, forgotten FROM search_mark WHERE namespace = ?"

_SET_MARK = """
INSERT OR REPLACE INTO search_mark (namespace, version, entry, stream, parts, forgotten)
VALUES (?, ?, ?, ?, ?, ?)
"""

_LOOSE_COLUMNS = "SELECT n, at, length, filters, said FROM search_loose WHERE namespace = ?"
_LOOSE = f"{_LOOSE_COLUMNS} AND at >= ? AND at < ?"
_LOOSE_AFTER = f"{_LOOSE_COLUMNS} AND n > ? ORDER BY n LIMIT ?"
_ADD_LOOSE = """
INSERT INTO search_loose (namespace, n, at, length, filters, said) VALUES (?, ?, ?, ?, ?, ?)
"""
_REMOVE_LOOSE = "DELETE FROM search_loose WHERE namespace = ? AND n = ?"

_HEADS = """
SELECT no, size, last FROM search_part WHERE namespace = ? AND last_at >= ? AND first_at < ?
"""
_PART_ROWS = """
SELECT no, size, last, first_at, last_at FROM search_part WHERE namespace = ? ORDER BY no
"""
_ADD_PART = """
INSERT INTO search_part (no, size, last, first_at, last_at, namespace) VALUES (?, ?, ?, ?, ?, ?)
"""
_NEXT_PART = "SELECT coalesce(max(no), 0) + 1 FROM search_part"
_IS_PART = "SELECT 1 FROM search_part WHERE no = ?"

# Parts of no namespace come from outside perdure, and take part numbers that others need.
_OWN_PARTS = """
SELECT no FROM search_part
WHERE namespace = ? OR NOT EXISTS (SELECT 1 FROM namespace AS a WHERE a.no = search_part.namespace)
"""

_PAGE = "SELECT body FROM search_page WHERE part = ? AND first <= ? ORDER BY first DESC LIMIT 1"
_PAGES_FROM = """
SELECT body FROM search_page WHERE part = ?1 AND first < ?3 AND first >= coalesce((
    SELECT first FROM search_page WHERE part = ?1 AND first <= ?2 ORDER BY first DESC LIMIT 1
), '')
"""
_PAGES = "SELECT first, body FROM search_page WHERE part = ? ORDER BY first"
_STRAY_PAGES = """
WITH RECURSIVE held (part) AS (
    SELECT min(part) FROM search_page
    UNION ALL
    SELECT (SELECT min(part) FROM search_page WHERE part > held.part) FROM held
    WHERE held.part IS NOT NULL
)
SELECT part FROM held
WHERE part IS NOT NULL AND NOT EXISTS (SELECT 1 FROM search_part WHERE no = held.part)
"""
_REMOVE_PAGES = "DELETE FROM search_page WHERE part = ?"
_ADD_PAGE = "INSERT INTO search_page VALUES (?, ?, ?)"

_BLOCKS = "SELECT id, said FROM search_text WHERE id >= ? AND id < ? ORDER BY id"
_BLOCKS_FROM = """
SELECT id, said FROM search_text
WHERE id >= coalesce((SELECT max(id) FROM search_text WHERE id >= ?1 AND id <= ?2), ?1) AND id < ?3
"""
_BLOCKS_WITH = f"{_BLOCKS_FROM} AND (id <= ?2 OR instr(said, ?4))"
_STARTS = """
SELECT t.id, t.n, p.last FROM search_part AS p
CROSS JOIN search_text AS t ON t.id >= p.no * ?4 AND t.id < (p.no + 1) * ?4
WHERE p.namespace = ?1 AND p.last >= ?2 AND (
    SELECT n FROM search_text WHERE id >= p.no * ?4 ORDER BY id LIMIT 1
) <= ?3
ORDER BY p.no, t.id
"""
_ADD_TEXT = "INSERT INTO search_text VALUES (?, ?, ?, ?, ?)"
_FIRST_TEXT = "SELECT min(id) FROM search_text WHERE id >= ?"

_LOOSE_AT = """
SELECT count(*) FROM search_loose
WHERE namespace = ? AND n IN (SELECT value FROM json_each(?))
"""

_COUNT = """
SELECT (SELECT coalesce(sum(size), 0) FROM search_part WHERE namespace = ?1)
    + (SELECT count(*) FROM search_loose WHERE namespace = ?1)
"""

_LOOSE_COUNT = "SELECT count(*) FROM search_loose WHERE namespace = ?"


_FILE_PAGE_BYTES, _ROW_BYTES = 4_088, 16
"""Bytes for rows in a page of the file, and bytes of a row of `search_page` besides its values."""


_FAR = 3
"""The next block is looked up if it is probably further away than this many blocks.

Otherwise, the blocks up to it are read: reading a block takes half as long as a lookup.
"""


def text_count(db: SqlRows, namespace: int | None) -> int:
    """Return how many texts of the namespace are indexed."""
    return int(db.value(_COUNT, namespace))


def loose_count(db: SqlRows, namespace: int) -> int:
    """Return how many texts of the namespace are not yet in a part of the index."""
    return int(db.value(_LOOSE_COUNT, namespace))


def stored_mark(db: SqlRows, namespace: int) -> Mark:
    """Return the stored index mark; its version is 0 if nothing was indexed."""
    return next((Mark(*row) for row in db.rows(_MARK, namespace)), Mark())


class SqliteReader:
    """`IndexReader` of one namespace of a file."""

    def __init__(self, db: SqlRows, namespace: int) -> None:
        self._db = db
        self._namespace = namespace

    async def mark(self) -> Mark:
        return stored_mark(self._db, self._namespace)

    async def heads(self, span: Span) -> list[Head]:
        return [Head(*row) for row in self._db.rows(_HEADS, self._namespace, *span)]

    async def loose(self, span: Span) -> list[LooseRow]:
        return [LooseRow(*row) for row in self._db.rows(_LOOSE, self._namespace, *span)]

    async def pages(self, parts: Sequence[int], keys: Sequence[str]) -> list[Looked]:
        return [
            Looked(part, key, row[0])
            for part in parts
            for key in keys
            for row in self._db.run(_PAGE, (part, key)).fetchall()
        ]

    async def pages_from(self, parts: Sequence[int], prefixes: Sequence[str]) -> list[Looked]:
        return [
            Looked(part, prefix, row[0])
            for part in parts
            for prefix in prefixes
            for row in self._db.run(_PAGES_FROM, (part, prefix, after(prefix))).fetchall()
        ]

    async def blocks(self, wanted: Sequence[Read]) -> Iterator[Block]:
        return self._blocks(wanted)

    def _blocks(self, wanted: Sequence[Read]) -> Iterator[Block]:
        for part, numbers, stretch in wanted:
            first, place = part * MOST_TEXTS, 0
            sql, more = (_BLOCKS_WITH, (stretch,)) if stretch else (_BLOCKS_FROM, ())
            sql += " ORDER BY id"
            while place < len(numbers):
                looked_up = place
                span = (first, first + numbers[place], first + numbers[-1] + 1)
                for id_, body in self._db.rows(sql, *span, *more):
                    block = Block(part, id_ - first, body)
                    behind = bisect_left(numbers, block.behind, place)
                    if behind > place:
                        place = behind
                        yield block
                    if looked_up < place < len(numbers) and _is_far(numbers[place], block):
                        break
                else:
                    break

    async def blocks_of(self, part: int) -> list[Block]:
        first, behind = _ids_of(part)
        return [
            Block(part, id_ - first, body) for id_, body in self._db.rows(_BLOCKS, first, behind)
        ]

    async def block_starts(self, first: int = -NO_END, last: int = NO_END) -> list[BlockStart]:
        rows = self._db.rows(_STARTS, self._namespace, first, last, MOST_TEXTS)
        return [BlockStart(*divmod(id_, MOST_TEXTS), *row) for id_, *row in rows]

    async def part(self, number: int) -> Part:
        said = tuple([said for block in await self.blocks_of(number) for said in block.said()])
        return Part(said, tuple([Page(*row) for row in self._db.rows(_PAGES, number)]))

    async def part_rows(self) -> list[PartRow]:
        return [PartRow(*row) for row in self._db.rows(_PART_ROWS, self._namespace)]

    async def loose_after(self, position: int, most: int) -> list[LooseRow]:
        rows = self._db.rows(_LOOSE_AFTER, self._namespace, position, most)
        return [LooseRow(*row) for row in rows]

    async def homeless(self) -> list[int]:
        return homeless_parts(self._db)

    async def stray_pages(self) -> list[int]:
        return stray_pages(self._db)

    async def loose_at(self, positions: Sequence[int]) -> int:
        listed = msgspec.json.encode(list(positions)).decode()
        return int(self._db.value(_LOOSE_AT, self._namespace, listed))


class SqliteWriter:
    """`IndexWriter` of one namespace of a file."""

    def __init__(self, db: SqlRows, namespace: int) -> None:
        self._db = db
        self._namespace = namespace
        self.reader = SqliteReader(db, namespace)

    async def set_mark(self, mark: Mark) -> None:
        self._db.run(_SET_MARK, (self._namespace, *mark))

    async def clear(self) -> None:
        own = [row[0] for row in self._db.rows(_OWN_PARTS, self._namespace)]
        for number in (*own, *homeless_parts(self._db)):
            await self.remove_part(number)
        self._db.run_many(_REMOVE_PAGES, ((number,) for number in stray_pages(self._db)))
        self._db.run("DELETE FROM search_loose WHERE namespace = ?", (self._namespace,))

    async def add_loose(self, rows: Iterable[LooseRow]) -> None:
        self._db.run_many(_ADD_LOOSE, ((self._namespace, *row) for row in rows))

    async def remove_loose(self, positions: Sequence[int]) -> None:
        self._db.run_many(_REMOVE_LOOSE, ((self._namespace, each) for each in positions))

    async def add_part(self, part: Part) -> None:
        row = part_row(int(self._db.value(_NEXT_PART)), part)
        self._db.run(_ADD_PART, (*row, self._namespace))
        first, _ = _ids_of(row.number)
        blocks = ((first + each.first, *each[1:]) for each in block_rows(part.said))
        self._db.run_many(_ADD_TEXT, blocks)
        self._db.run_many(_ADD_PAGE, ((row.number, *page) for page in _filling(part.pages)))

    async def remove_part(self, number: int) -> None:
        self._db.run("DELETE FROM search_text WHERE id >= ? AND id < ?", _ids_of(number))
        self._db.run(_REMOVE_PAGES, (number,))
        self._db.run("DELETE FROM search_part WHERE no = ?", (number,))


def _is_far(number: int, block: Block) -> bool:
    """Return whether the text `number` is probably more than `_FAR` blocks after `block`."""
    return number - block.behind > _FAR * (block.behind - block.first)


def _filling(pages: Iterable[Page]) -> Iterator[Page]:
    """Yield `pages` in an order that leaves little unused space in the index file."""
    bins: list[tuple[int, list[Page]]] = []
    for page in sorted(pages, key=lambda page: -len(page.body)):
        size = len(page.body) + len(page.first.encode()) + _ROW_BYTES
        for place, (left, held) in enumerate(bins):
            if size <= left:
                held.append(page)
                bins[place] = left - size, held
                break
        else:
            bins.append((_FILE_PAGE_BYTES - size, [page]))
    return chain.from_iterable(held for _, held in bins)


def homeless_parts(db: SqlRows) -> list[int]:
    """Return the numbers of index parts whose texts are stored but whose own row is missing.

    The query costs one lookup for each index part in the file.
    """
    found: list[int] = []
    place = db.value(_FIRST_TEXT, -(2**62))
    while place is not None:
        number = place // MOST_TEXTS
        if db.value(_IS_PART, number) is None:
            found.append(number)
        place = db.value(_FIRST_TEXT, (number + 1) * MOST_TEXTS)
    return found


def stray_pages(db: SqlRows) -> list[int]:
    """Return the numbers of index parts whose pages are stored but whose own row is missing.

    The query costs one lookup for each index part in the file.
    """
    return [row[0] for row in db.rows(_STRAY_PAGES)]


def _ids_of(part: int) -> tuple[int, int]:
    """Return the range of the ids of an index part's texts: the first, and one after the last."""
    return part * MOST_TEXTS, (part + 1) * MOST_TEXTS
