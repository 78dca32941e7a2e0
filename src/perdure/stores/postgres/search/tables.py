"""The tables of a namespace's search index in a PostgreSQL database.

The tables contain the index parts with their pages, the texts that are not yet in a part, and the
index mark.
``stores/postgres/migrations`` documents the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import LiteralString

from perdure.session.search.parts.blocks import Block, block_rows
from perdure.session.search.parts.builder import Part
from perdure.session.search.parts.lookup import Head, Looked, Read
from perdure.session.search.parts.pages import Page, after
from perdure.session.search.words import VERSION
from perdure.stores.postgres.database import Connected, Statement, run_statements
from perdure.stores.postgres.rows import Contents, Numbers, Row, Texts
from perdure.stores.postgres.search.vectors import Ask, PostgresVectors
from perdure.stores.search import indexer
from perdure.stores.search.rows import (
    NO_END,
    BlockStart,
    LooseRow,
    Mark,
    PartRow,
    Span,
    part_row,
)

MARK: LiteralString = (
    "SELECT version, upto, upto, parts, forgotten FROM perdure.search_mark WHERE namespace = %s"
)

_BEGIN_MARK: LiteralString = """
INSERT INTO perdure.search_mark VALUES (%s, %s, 0, 0) ON CONFLICT DO NOTHING
"""

_LOCK_MARK: LiteralString = "SELECT 1 FROM perdure.search_mark WHERE namespace = %s FOR UPDATE"

_SET_MARK: LiteralString = """
INSERT INTO perdure.search_mark (namespace, version, upto, parts, forgotten)
VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (namespace) DO UPDATE SET version = excluded.version, upto = excluded.upto,
    parts = excluded.parts, forgotten = excluded.forgotten
"""

_LOOSE_COLUMNS: LiteralString = """
SELECT n, at, length, filters, said FROM perdure.search WHERE namespace = %s AND part = 0
"""
_LOOSE: LiteralString = _LOOSE_COLUMNS + " AND at >= %s AND at < %s"
_LOOSE_AFTER: LiteralString = _LOOSE_COLUMNS + " AND number > %s ORDER BY number LIMIT %s"

_ADD_LOOSE: LiteralString = """
INSERT INTO perdure.search (namespace, n, part, number, at, length, filters, said)
SELECT %s, d.n, 0, d.n, d.at, d.length, d.filters, d.said
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bytea[])
    AS d (n, at, length, filters, said)
"""

_REMOVE_LOOSE: LiteralString = """
DELETE FROM perdure.search WHERE namespace = %s AND part = 0 AND n = ANY(%s)
"""

_HEADS: LiteralString = """
SELECT no, size, last FROM perdure.search_part
WHERE namespace = %s AND last_at >= %s AND first_at < %s
"""
_PART_ROWS: LiteralString = """
SELECT no, size, last, first_at, last_at FROM perdure.search_part WHERE namespace = %s ORDER BY no
"""
_ADD_PART: LiteralString = """
INSERT INTO perdure.search_part (namespace, no, size, last, first_at, last_at)
VALUES (%s, %s, %s, %s, %s, %s)
"""
_NEXT_PART: LiteralString = """
SELECT coalesce(max(no), 0) + 1 FROM perdure.search_part WHERE namespace = %s
"""

EXACT: LiteralString = """
SELECT p.no, k.key, g.body
FROM unnest(%s::bigint[]) AS p (no) CROSS JOIN unnest(%s::text[]) AS k (key)
CROSS JOIN LATERAL (
    SELECT body FROM perdure.search_page
    WHERE namespace = %s AND part = p.no AND first <= k.key COLLATE "C"
    ORDER BY first DESC LIMIT 1
) AS g
"""

# OFFSET 0: see ``log.BEHIND``. Pages are looked up for each prefix, however few there are.
BEGUN: LiteralString = """
SELECT p.no, k.prefix, g.body
FROM unnest(%s::bigint[]) AS p (no)
CROSS JOIN unnest(%s::text[], %s::text[]) AS k (prefix, behind)
CROSS JOIN LATERAL (SELECT coalesce((
    SELECT first FROM perdure.search_page
    WHERE namespace = %s AND part = p.no AND first <= k.prefix COLLATE "C"
    ORDER BY first DESC LIMIT 1
), '') AS first OFFSET 0) AS f
CROSS JOIN LATERAL (
    SELECT body FROM perdure.search_page
    WHERE namespace = %s AND part = p.no AND first >= f.first AND first < k.behind COLLATE "C"
    OFFSET 0
) AS g
"""

_PAGES: LiteralString = """
SELECT first, body FROM perdure.search_page WHERE namespace = %s AND part = %s ORDER BY first
"""
_ADD_PAGES: LiteralString = """
INSERT INTO perdure.search_page (namespace, part, first, body)
SELECT %s, %s, d.first, d.body FROM unnest(%s::text[], %s::bytea[]) AS d (first, body)
"""

# The blocks are found by their numbers first, so that each is read once.
BLOCKS: LiteralString = """
SELECT b.part, b.number, s.said
FROM (
    SELECT DISTINCT t.part, f.number
    FROM unnest(%s::bigint[], %s::bigint[]) AS t (part, number)
    CROSS JOIN LATERAL (
        SELECT number FROM perdure.search
        WHERE namespace = %s AND part = t.part AND number <= t.number
        ORDER BY number DESC LIMIT 1
    ) AS f
) AS b
CROSS JOIN LATERAL (
    SELECT said FROM perdure.search
    WHERE namespace = %s AND part = b.part AND number = b.number LIMIT 1
) AS s
"""

# The block of the first text, and those of the later ones that contain the codes `stretch`. An
# empty `stretch` is in every block. OFFSET 0: as in BEGUN.
BLOCKS_BETWEEN: LiteralString = """
SELECT t.part, s.number, s.said
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
    AS t (part, first, last, stretch)
CROSS JOIN LATERAL (
    SELECT number FROM perdure.search
    WHERE namespace = %s AND part = t.part AND number <= t.first
    ORDER BY number DESC LIMIT 1
) AS f
CROSS JOIN LATERAL (
    SELECT number, said FROM perdure.search
    WHERE namespace = %s AND part = t.part AND number BETWEEN f.number AND t.last
        AND (number = f.number OR position(t.stretch IN said) > 0)
    OFFSET 0
) AS s
"""
_BLOCKS_OF: LiteralString = """
SELECT part, number, said FROM perdure.search WHERE namespace = %s AND part = %s ORDER BY number
"""
_STARTS: LiteralString = """
SELECT s.part, s.number, s.n, coalesce(p.last, 4611686018427387904)
FROM perdure.search AS s
LEFT JOIN perdure.search_part AS p ON p.namespace = s.namespace AND p.no = s.part
WHERE s.namespace = %s AND s.part <> 0 AND (p.last IS NULL OR p.last >= %s) AND s.n <= %s
ORDER BY s.part, s.number
"""
_ADD_TEXTS: LiteralString = """
INSERT INTO perdure.search (namespace, n, part, number, at, length, filters, said)
SELECT %s, d.n, %s, d.number, d.at, d.length, '', d.said
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
    AS d (number, n, at, length, said)
"""

_REMOVE_PART: tuple[LiteralString, ...] = (
    "DELETE FROM perdure.search WHERE namespace = %s AND part = %s",
    "DELETE FROM perdure.search_part WHERE namespace = %s AND no = %s",
    "DELETE FROM perdure.search_page WHERE namespace = %s AND part = %s",
)

_CLEAR: tuple[LiteralString, ...] = (
    "DELETE FROM perdure.search WHERE namespace = %s",
    "DELETE FROM perdure.search_part WHERE namespace = %s",
    "DELETE FROM perdure.search_page WHERE namespace = %s",
)

_LOOSE_AT: LiteralString = """
SELECT count(*) FROM perdure.search WHERE namespace = %s AND part = 0 AND n = ANY(%s)
"""

_HOMELESS: LiteralString = """
SELECT DISTINCT s.part FROM perdure.search AS s
WHERE s.namespace = %s AND s.part <> 0 AND NOT EXISTS (
    SELECT FROM perdure.search_part AS p WHERE p.namespace = %s AND p.no = s.part
) ORDER BY s.part
"""
_STRAY_PAGES: LiteralString = """
SELECT DISTINCT g.part FROM perdure.search_page AS g
WHERE g.namespace = %s AND NOT EXISTS (
    SELECT FROM perdure.search_part AS p WHERE p.namespace = g.namespace AND p.no = g.part
) ORDER BY g.part
"""


_FEW, _DENSE = 16, 32
"""Limits of `_is_range`: the least number of wanted texts, and the largest mean distance.

A block contains about 60 texts. If one text in 32 is wanted, nearly every block is needed.
"""


def _is_range(wanted: Read) -> bool:
    """Return True to read a range of blocks; False to look up the block of each text."""
    texts = wanted.numbers
    is_dense = len(texts) * _DENSE > texts[-1] - texts[0]
    return len(texts) >= _FEW and (bool(wanted.stretch) or is_dense)


class PostgresReader:
    """`IndexReader` of one namespace of a database."""

    def __init__(self, ask: Ask, namespace: str) -> None:
        self._ask = ask
        self._namespace = namespace

    async def _rows(self, sql: LiteralString, *values: object) -> list[Row]:
        (rows,) = await self._ask([Statement(sql, (self._namespace, *values))])
        return rows

    async def mark(self) -> Mark:
        return mark_in(await self._rows(MARK))

    async def heads(self, span: Span) -> list[Head]:
        return [Head(*row) for row in await self._rows(_HEADS, *span)]

    async def loose(self, span: Span) -> list[LooseRow]:
        return [LooseRow(*row) for row in await self._rows(_LOOSE, *span)]

    async def pages(self, parts: Sequence[int], keys: Sequence[str]) -> list[Looked]:
        statement = Statement(EXACT, (Numbers(parts), Texts(keys), self._namespace))
        (rows,) = await self._ask([statement])
        return [Looked(*row) for row in rows]

    async def pages_from(self, parts: Sequence[int], prefixes: Sequence[str]) -> list[Looked]:
        ns, ends = self._namespace, Texts(map(after, prefixes))
        statement = Statement(BEGUN, (Numbers(parts), Texts(prefixes), ends, ns, ns))
        (rows,) = await self._ask([statement])
        return [Looked(*row) for row in rows]

    async def blocks(self, wanted: Sequence[Read]) -> list[Block]:
        near = [each for each in wanted if _is_range(each)]
        apart = [each for each in wanted if not _is_range(each)]
        statements = [self._blocks_between(near)] if near else []
        statements += [self._blocks_with(apart)] if apart else []
        return [Block(*row) for rows in await self._ask(statements) for row in rows]

    def _blocks_between(self, wanted: Sequence[Read]) -> Statement:
        """Return the query for the blocks of each read.

        The result has the first block, and those later blocks that contain the `stretch` of the
        read.
        """
        ends = (
            Numbers(each.part for each in wanted),
            Numbers(each.numbers[0] for each in wanted),
            Numbers(each.numbers[-1] for each in wanted),
            Contents(each.stretch for each in wanted),
        )
        return Statement(BLOCKS_BETWEEN, (*ends, self._namespace, self._namespace))

    def _blocks_with(self, wanted: Sequence[Read]) -> Statement:
        """Return the query for those blocks that contain texts of `wanted`."""
        parts = Numbers(each.part for each in wanted for _ in each.numbers)
        numbers = Numbers(number for each in wanted for number in each.numbers)
        return Statement(BLOCKS, (parts, numbers, self._namespace, self._namespace))

    async def blocks_of(self, part: int) -> list[Block]:
        return [Block(*row) for row in await self._rows(_BLOCKS_OF, part)]

    async def block_starts(self, first: int = -NO_END, last: int = NO_END) -> list[BlockStart]:
        return [BlockStart(*row) for row in await self._rows(_STARTS, first, last)]

    async def part(self, number: int) -> Part:
        own = (self._namespace, number)
        rows, pages = await self._ask([Statement(_BLOCKS_OF, own), Statement(_PAGES, own)])
        said = [said for row in rows for said in Block(*row).said()]
        return Part(tuple(said), tuple([Page(*row) for row in pages]))

    async def part_rows(self) -> list[PartRow]:
        return [PartRow(*row) for row in await self._rows(_PART_ROWS)]

    async def loose_after(self, position: int, most: int) -> list[LooseRow]:
        return [LooseRow(*row) for row in await self._rows(_LOOSE_AFTER, position, most)]

    async def homeless(self) -> list[int]:
        return [row[0] for row in await self._rows(_HOMELESS, self._namespace)]

    async def stray_pages(self) -> list[int]:
        return [row[0] for row in await self._rows(_STRAY_PAGES)]

    async def loose_at(self, positions: Sequence[int]) -> int:
        return int((await self._rows(_LOOSE_AT, Numbers(positions)))[0][0])


class PostgresWriter:
    """`IndexWriter` of one namespace of a database, in the transaction of a connection."""

    def __init__(self, db: Connected, namespace: str) -> None:
        self._db = db
        self._namespace = namespace
        self.reader = PostgresReader(self._run, namespace)

    async def _run(self, statements: Sequence[Statement]) -> Sequence[list[Row]]:
        return await run_statements(self._db, self._namespace, statements)

    async def set_mark(self, mark: Mark) -> None:
        values = (self._namespace, mark.version, mark.entry, mark.parts, mark.forgotten)
        await self._run([Statement(_SET_MARK, values)])

    async def clear(self) -> None:
        await self._run([Statement(each, (self._namespace,)) for each in _CLEAR])

    async def add_loose(self, rows: Sequence[LooseRow]) -> None:
        if not rows:
            return
        columns = (
            Numbers(row.position for row in rows),
            Numbers(row.at for row in rows),
            Numbers(row.length for row in rows),
            Texts(row.filters for row in rows),
            Contents(row.words.encode() for row in rows),
        )
        await self._run([Statement(_ADD_LOOSE, (self._namespace, *columns))])

    async def remove_loose(self, positions: Sequence[int]) -> None:
        await self._run([Statement(_REMOVE_LOOSE, (self._namespace, Numbers(positions)))])

    async def add_part(self, part: Part) -> None:
        ((next_row,),) = await self._run([Statement(_NEXT_PART, (self._namespace,))])
        own = (self._namespace, next_row[0])
        blocks, pages = list(block_rows(part.said)), part.pages
        texts = (
            Numbers(block.first for block in blocks),
            Numbers(block.position for block in blocks),
            Numbers(block.at for block in blocks),
            Numbers(block.texts for block in blocks),
            Contents(block.body for block in blocks),
        )
        bodies = (Texts(page.first for page in pages), Contents(page.body for page in pages))
        head = (self._namespace, *part_row(next_row[0], part))
        await self._run(
            [
                Statement(_ADD_TEXTS, (*own, *texts)),
                Statement(_ADD_PART, head),
                Statement(_ADD_PAGES, (*own, *bodies)),
            ]
        )

    async def remove_part(self, number: int) -> None:
        await self._run([Statement(each, (self._namespace, number)) for each in _REMOVE_PART])


def locking_mark(namespace: str) -> list[Statement]:
    """Return the statements that lock the index mark; indexing waits until the transaction ends.

    Run the statements before any stream is locked. The statements create the row of the index mark
    if it is missing, because without this row two erasures would not wait for each other.
    """
    begin = Statement(_BEGIN_MARK, (namespace, VERSION))
    return [begin, Statement(_LOCK_MARK, (namespace,))]


def mark_in(rows: Sequence[Row]) -> Mark:
    """Return the index mark in the result of `MARK`; its version is 0 if no entry was indexed."""
    return Mark(*rows[0]) if rows else Mark()


async def forget(db: Connected, namespace: str, positions: Sequence[int]) -> int:
    """Run ``indexer.forget`` for a namespace in the transaction of `db`, and remove the vectors."""
    ask = partial(run_statements, db, namespace)
    await PostgresVectors(ask, namespace).remove(positions)
    return await indexer.forget(PostgresWriter(db, namespace), positions)
