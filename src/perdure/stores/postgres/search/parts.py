"""The tables of the index: texts that are loose, and parts; one made of the other, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import LiteralString

from perdure.session.search.parts.builder import Part, Said, Text, make_part, texts_in
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.pages import DAMAGE, Page
from perdure.session.search.phrase_text import join_terms
from perdure.stores.postgres.database import Connected, Statement, run_statements
from perdure.stores.postgres.rows import Contents, Numbers, Row, Texts

_ADD_LOOSE: LiteralString = """
INSERT INTO perdure.search (namespace, n, part, number, at, length, filters, said)
SELECT %s, d.n, 0, d.n, d.at, d.length, d.filters, d.said
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::bytea[])
    AS d (n, at, length, filters, said)
"""

_ADD: LiteralString = """
INSERT INTO perdure.search (namespace, n, part, number, at, length, filters, said)
SELECT %s, d.n, %s, d.number - 1, d.at, d.length, '', d.said
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[])
    WITH ORDINALITY AS d (n, at, length, said, number)
"""

_ADD_PART: LiteralString = """
INSERT INTO perdure.search_part (namespace, no, size, last, first_at, last_at)
VALUES (%s, %s, %s, %s, %s, %s)
"""

_ADD_PAGES: LiteralString = """
INSERT INTO perdure.search_page (namespace, part, first, body)
SELECT %s, %s, d.first, d.body FROM unnest(%s::text[], %s::bytea[]) AS d (first, body)
"""

_COUNT: LiteralString = """
SELECT count(*), coalesce(sum(length), 0)::bigint FROM perdure.search
WHERE namespace = %s AND part = 0 AND length <= %s
"""

_LOOSE: LiteralString = """
SELECT t.n, t.at, t.filters, t.said FROM (
    SELECT s.*, sum(s.length) OVER (ORDER BY s.n) AS words FROM (
        SELECT * FROM perdure.search
        WHERE namespace = %s AND part = 0 AND length <= %s ORDER BY number LIMIT %s
    ) AS s
) AS t WHERE t.words <= %s ORDER BY t.n
"""

SAID: LiteralString = """
SELECT number, n, at, length, said FROM perdure.search
WHERE namespace = %s AND part = %s ORDER BY number
"""

PAGES: LiteralString = """
SELECT first, body FROM perdure.search_page WHERE namespace = %s AND part = %s ORDER BY first
"""

_PARTS_OF: LiteralString = """
SELECT part, count(*) FROM perdure.search WHERE namespace = %s AND n = ANY(%s) GROUP BY part
"""

_REMOVE: LiteralString = "DELETE FROM perdure.search WHERE namespace = %s AND n = ANY(%s)"

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

_START: LiteralString = "UPDATE perdure.search_mark SET upto = 0, parts = 0 WHERE namespace = %s"


def clearing(ns: str) -> list[Statement]:
    """Takes everything out."""
    return [Statement(each, (ns,)) for each in _CLEAR]


def adding_loose(ns: str, texts: Sequence[Text]) -> Statement:
    """Adds `texts` that are in no part."""
    positions, ats = Numbers(text.position for text in texts), Numbers(text.at for text in texts)
    lengths = Numbers(len(text.words) for text in texts)
    filters = Texts(" ".join(text.filters) for text in texts)
    said = Contents(join_terms(text.words).encode() for text in texts)
    return Statement(_ADD_LOOSE, (ns, positions, ats, lengths, filters, said))


async def loose_count(db: Connected, ns: str) -> tuple[int, int]:
    """How many texts are in no part, and how many words they are, but for what is too long."""
    ((row,),) = await run_statements(db, ns, [Statement(_COUNT, (ns, MOST_WORDS))])
    return row[0], row[1]


async def take_loose(db: Connected, ns: str, most: int) -> list[Text]:
    """The first loose texts, as far as they make one part; they are taken out."""
    (rows,) = await run_statements(db, ns, [Statement(_LOOSE, (ns, MOST_WORDS, most, MOST_WORDS))])
    texts = list(map(loose_text, rows))
    positions = Numbers(text.position for text in texts)
    await run_statements(db, ns, [Statement(_REMOVE, (ns, positions))])
    return texts


def loose_text(row: Row) -> Text:
    """The text in a row: its position and time, its filters and its words."""
    position, at, filters, said = row
    return Text(position, at, said.decode().split(), filters.split())


async def add_part(db: Connected, ns: str, number: int, texts: Sequence[Text]) -> None:
    """Make `texts` the part of that number."""
    said, pages = await asyncio.to_thread(make_part, texts)
    ats = [text.at for text in said]
    head = (ns, number, len(said), said[-1].position, min(ats), max(ats))
    rows = (
        Numbers(text.position for text in said),
        Numbers(ats),
        Numbers(text.length for text in said),
        Contents(text.codes for text in said),
    )
    firsts, bodies = Texts(page.first for page in pages), Contents(page.body for page in pages)
    adding = Statement(_ADD, (ns, number, *rows))
    adding_pages = Statement(_ADD_PAGES, (ns, number, firsts, bodies))
    await run_statements(db, ns, [adding, Statement(_ADD_PART, head), adding_pages])


async def part_of(db: Connected, ns: str, number: int) -> Part:
    """The part of that number."""
    own = (ns, number)
    said, pages = await run_statements(db, ns, [Statement(SAID, own), Statement(PAGES, own)])
    return Part(tuple([Said(*row[1:]) for row in said]), tuple([Page(*row) for row in pages]))


async def forget(db: Connected, ns: str, positions: Iterable[int]) -> int:
    """Take out what the entries at `positions` say; a title is at -(its birth's). How many it was.

    The other texts of their parts are loose then; of a damaged index nothing is left.
    """
    gone = Numbers(positions)
    (rows,) = await run_statements(db, ns, [Statement(_PARTS_OF, (ns, gone))])
    try:
        for number in sorted(part for part, _ in rows if part):
            await _take_apart(db, ns, number, frozenset(gone))
        await run_statements(db, ns, [Statement(_REMOVE, (ns, gone))])
    except DAMAGE:
        await run_statements(db, ns, [*clearing(ns), Statement(_START, (ns,))])
    return sum(count for _, count in rows)


async def _take_apart(db: Connected, ns: str, number: int, gone: frozenset[int]) -> None:
    texts = list(texts_in(await part_of(db, ns, number)))
    left = [text for text in texts if text.position not in gone]
    removing = [Statement(each, (ns, number)) for each in _REMOVE_PART]
    await run_statements(db, ns, [*removing, adding_loose(ns, left)])
