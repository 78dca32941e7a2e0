"""The log of a namespace of a database, as the search index reads it.

In the index, the position of a text is the position of its entry in the log. The position of a
stream's initial title is the negative of the position at which the stream was created. The log is
read up to the horizon (``perdure.settle``): no commit in progress can add an entry before the
horizon.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from typing import LiteralString, TypeVar

import msgspec

from perdure.session.info import StreamHeader
from perdure.session.search.parts import sizes
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import MOST_RANKED
from perdure.stores.postgres.database import Statement
from perdure.stores.postgres.rows import (
    ENTRY_COLUMNS,
    HORIZON,
    SETTLE,
    Numbers,
    Row,
    Texts,
    entry_of,
    place_of,
)
from perdure.stores.postgres.search.vectors import Ask
from perdure.stores.scan import Found, found_entry, found_title
from perdure.stores.search.rows import NO_END, Mark, NextTexts

AT_ONCE = MOST_RANKED
"""Maximum number of texts that one query reads."""

_MANY = 10_000
"""Maximum number of positions that one query reads."""

_FROM: LiteralString = """
FROM perdure.entry AS e
WHERE e.namespace = %s AND e.n > 0 AND e.n > %s AND e.n <= %s AND e.kind = ANY(%s)
"""

_SUBJECT: LiteralString = """
(SELECT convert_from(b.header, 'UTF8')::json -> 'subject' FROM perdure.birth AS b
WHERE b.namespace = e.namespace AND b.stream = e.stream)::text
"""

# No join: before the first ANALYZE, a partial index on sessions looks as cheap as the primary key,
# and would be read as a whole for each entry.
_KIND: LiteralString = """
(SELECT s.kind FROM perdure.stream AS s WHERE s.namespace = e.namespace AND s.id = e.stream)
"""

_COLUMNS: LiteralString = f"{ENTRY_COLUMNS}, {_SUBJECT}, {_KIND}"

_ENTRIES: LiteralString = f"SELECT {_COLUMNS}, e.n {_FROM} ORDER BY e.n DESC LIMIT %s"

NEXT: LiteralString = f"""
SELECT {_COLUMNS}, e.of, e.n FROM (
    SELECT e.*, count(*) OVER () AS of,
        sum(octet_length(e.body)) OVER (ORDER BY e.n) - octet_length(e.body) AS before
    FROM (SELECT e.* {_FROM} ORDER BY e.n LIMIT %s) AS e
) AS e WHERE e.before < %s ORDER BY e.n
"""  # noqa: S608 - put together from constants

_TITLES: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b
WHERE b.namespace = %s AND b.n > 0 AND b.n > %s AND b.n <= %s ORDER BY b.n LIMIT %s
"""

_ENTRIES_AT: LiteralString = f"""
SELECT {_COLUMNS}, e.n FROM perdure.entry AS e
WHERE e.namespace = %s AND e.n > 0 AND e.n = ANY(%s) AND e.kind = ANY(%s)
"""  # noqa: S608 - put together from constants

_TITLES_AT: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b
WHERE b.namespace = %s AND b.n > 0 AND b.n = ANY(%s)
"""

_POSITIONS: LiteralString = f"SELECT e.n {_FROM} ORDER BY e.n LIMIT %s"

_ON_BRANCH: LiteralString = """
SELECT CASE WHEN s.leaf IS NULL OR e.run IS NULL THEN false ELSE perdure.is_on_branch(
    %s, t.of, t.seq, split_part(s.leaf, '/', 1), split_part(s.leaf, '/', 2)::bigint
) END
FROM unnest(%s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS t (stream, of, seq, i)
LEFT JOIN perdure.stream AS s ON s.namespace = %s AND s.id = t.stream
LEFT JOIN perdure.entry AS e ON e.namespace = %s AND e.stream = t.of AND e.seq = t.seq
ORDER BY t.i
"""

_header = msgspec.json.Decoder(StreamHeader)
_subject = msgspec.json.Decoder(str)

T = TypeVar("T")


class PostgresLog:
    """`IndexedLog` of one namespace of a database."""

    def __init__(self, ask: Ask, namespace: str, address: str) -> None:
        self._ask = ask
        self._namespace = namespace
        self.address = address

    async def compute(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)

    async def next_texts(self, mark: Mark) -> NextTexts:
        settled = await self._ask([Statement(SETTLE), Statement(HORIZON)])
        upto: int = settled[1][0][0]
        span, most = (self._namespace, mark.entry, upto), sizes.BATCH_ROWS
        rows, titles = await self._ask(
            [
                Statement(NEXT, (*span, list(KINDS), most, sizes.BATCH_BYTES)),
                Statement(_TITLES, (*span, most)),
            ]
        )
        if rows and (len(rows) == most or len(rows) < rows[-1][-2]):
            upto = rows[-1][-1]
        if len(titles) == most:
            upto = min(upto, titles[-1][-1])
        read = [*((*row[:-2], row[-1]) for row in rows), *titles]
        read = sorted((row for row in read if row[-1] <= upto), key=_position)
        found = await self.compute(lambda: _found_in(read))
        marks = [
            mark._replace(entry=abs(each.position), stream=abs(each.position)) for each in found
        ]
        end = mark._replace(entry=upto, stream=upto)
        return NextTexts(list(zip(found, marks, strict=True)), end)

    async def behind(self, mark: Mark) -> AsyncIterator[Sequence[Found]]:
        below = NO_END
        while below:
            span = (self._namespace, mark.entry, below - 1, list(KINDS), AT_ONCE)
            rows = await self._rows(Statement(_ENTRIES, span))
            yield await self._found(rows)
            below = rows[-1][-1] if len(rows) == AT_ONCE else 0
        async for titles in self._paged(_TITLES, mark.stream, NO_END):
            yield titles

    async def missing(self, mark: Mark, indexed: Container[int]) -> AsyncIterator[Sequence[Found]]:
        after = 0
        while after < mark.entry:
            span = (self._namespace, after, mark.entry, list(KINDS), _MANY)
            positions = [row[0] for row in await self._rows(Statement(_POSITIONS, span))]
            yield await self.texts_at([each for each in positions if each not in indexed])
            after = positions[-1] if len(positions) == _MANY else mark.entry
        async for titles in self._paged(_TITLES, 0, mark.stream):
            yield [each for each in titles if each.position not in indexed]

    async def texts_at(self, positions: Sequence[int]) -> Sequence[Found]:
        entries = Numbers(n for n in positions if n > 0)
        births = Numbers(-n for n in positions if n < 0)
        found, titles = await self._ask(
            [
                Statement(_ENTRIES_AT, (self._namespace, entries, list(KINDS))),
                Statement(_TITLES_AT, (self._namespace, births)),
            ]
        )
        return await self._found([*found, *titles])

    async def on_branch(self, texts: Sequence[Found]) -> list[bool]:
        targets = [found.target for found in texts]
        places = [None if target is None else place_of(target) for target in targets]
        asked_for = [
            (found.stream, *place)
            for found, place in zip(texts, places, strict=True)
            if place is not None
        ]
        streams, of, seqs = zip(*asked_for, strict=True) if asked_for else ((), (), ())
        ns = self._namespace
        values = (ns, Texts(streams), Texts(of), Numbers(seqs), ns, ns)
        known = iter([bool(row[0]) for row in await self._rows(Statement(_ON_BRANCH, values))])
        return [
            target is None or (place is not None and next(known))
            for target, place in zip(targets, places, strict=True)
        ]

    async def _paged(
        self, sql: LiteralString, after: int, upto: int
    ) -> AsyncIterator[Sequence[Found]]:
        while True:
            asked = (self._namespace, after, upto, AT_ONCE)
            rows = await self._rows(Statement(sql, asked))
            yield await self._found(rows)
            if len(rows) < AT_ONCE:
                return
            after = rows[-1][-1]

    async def _rows(self, statement: Statement) -> list[Row]:
        (rows,) = await self._ask([statement])
        return rows

    async def _found(self, rows: Sequence[Row]) -> Sequence[Found]:
        """Return the searchable texts in `rows`.

        The rows are decoded on a separate thread, because a row may be very long.
        """
        return await self.compute(lambda: _found_in(rows)) if rows else []


def _position(row: Row) -> int:
    return row[-1]


def _found_in(rows: Iterable[Row]) -> list[Found]:
    return [found for row in rows if (found := _found_in_row(row)) is not None]


def _found_in_row(row: Row) -> Found | None:
    *columns, position = row
    if len(columns) == 1:
        return found_title(position, _header.decode(columns[0]))
    *entry, subject, kind = columns
    if kind != "session":
        return None
    return found_entry(position, entry_of(tuple(entry)), subject and _subject.decode(subject))
