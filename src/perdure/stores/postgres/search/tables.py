"""The tables of a namespace's index in a database: loose texts, parts, their pages, and the mark.

``stores/postgres/migrations`` documents the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import LiteralString

from perdure.session.search.parts.builder import Part, Said
from perdure.session.search.parts.lookup import Head, Looked, Read, Spoken
from perdure.session.search.parts.pages import Page, after
from perdure.stores.postgres.database import Connected, Statement, run_statements
from perdure.stores.postgres.rows import Contents, Numbers, Row, Texts
from perdure.stores.postgres.search.vectors import Ask, PostgresVectors
from perdure.stores.search import indexer
from perdure.stores.search.rows import LooseRow, Mark, PartRow, Span, part_row

MARK: LiteralString = (
    "SELECT version, upto, upto, parts, forgotten FROM perdure.search_mark WHERE namespace = %s"
)

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

SPOKEN: LiteralString = """
SELECT t.part, t.number, s.n, s.length, s.said, s.at
FROM unnest(%s::bigint[], %s::bigint[]) AS t (part, number)
CROSS JOIN LATERAL (
    SELECT n, length, said, at FROM perdure.search
    WHERE namespace = %s AND part = t.part AND number = t.number AND at >= %s AND at < %s
    LIMIT 1
) AS s
"""
_SAID: LiteralString = """
SELECT n, at, length, said FROM perdure.search WHERE namespace = %s AND part = %s ORDER BY number
"""
_ADD_TEXTS: LiteralString = """
INSERT INTO perdure.search (namespace, n, part, number, at, length, filters, said)
SELECT %s, d.n, %s, d.number - 1, d.at, d.length, '', d.said
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
    WITH ORDINALITY AS d (n, at, length, said, number)
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

_PARTS_OF: LiteralString = """
SELECT part, count(*) FROM perdure.search WHERE namespace = %s AND n = ANY(%s) GROUP BY part
"""

_HOMELESS: LiteralString = """
SELECT s.n FROM perdure.search AS s WHERE s.namespace = %s AND s.part <> 0 AND NOT EXISTS (
    SELECT FROM perdure.search_part AS p WHERE p.namespace = %s AND p.no = s.part
) ORDER BY s.n
"""


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

    async def spoken(self, wanted: Sequence[Read], span: Span) -> list[Spoken]:
        parts, numbers = Numbers(t.part for t in wanted), Numbers(t.number for t in wanted)
        (rows,) = await self._ask([Statement(SPOKEN, (parts, numbers, self._namespace, *span))])
        return [Spoken(*row) for row in rows]

    async def part(self, number: int) -> Part:
        own = (self._namespace, number)
        said, pages = await self._ask([Statement(_SAID, own), Statement(_PAGES, own)])
        return Part(tuple([Said(*row) for row in said]), tuple([Page(*row) for row in pages]))

    async def part_rows(self) -> list[PartRow]:
        return [PartRow(*row) for row in await self._rows(_PART_ROWS)]

    async def loose_after(self, position: int, most: int) -> list[LooseRow]:
        return [LooseRow(*row) for row in await self._rows(_LOOSE_AFTER, position, most)]

    async def homeless(self) -> list[int]:
        return [row[0] for row in await self._rows(_HOMELESS, self._namespace)]


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
        said, pages = part.said, part.pages
        texts = (
            Numbers(text.position for text in said),
            Numbers(text.at for text in said),
            Numbers(text.length for text in said),
            Contents(text.codes for text in said),
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

    async def parts_of(self, positions: Sequence[int]) -> dict[int, int]:
        values = (self._namespace, Numbers(positions))
        (rows,) = await self._run([Statement(_PARTS_OF, values)])
        return dict(rows)


def mark_in(rows: Sequence[Row]) -> Mark:
    """Return the mark in the answer to `MARK`; version 0 if nothing was indexed."""
    return Mark(*rows[0]) if rows else Mark()


async def forget(db: Connected, namespace: str, positions: Sequence[int]) -> int:
    """Run ``indexer.forget`` for a namespace, in the transaction of `db`, and remove vectors."""
    ask = partial(run_statements, db, namespace)
    await PostgresVectors(ask, namespace).remove(positions)
    return await indexer.forget(PostgresWriter(db, namespace), positions)
