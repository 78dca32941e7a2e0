"""Searching a database: candidates out of the index and, behind its mark, out of the log.

The parts of the index give texts that may fit, by their codes; which fit and what comes first is
decided by these (``session.search``), so that every backend finds the same, and only what is shown
is read from the log. All of a search is read at one moment: nobody who indexes, or builds the index
anew, can be seen half done.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString

from perdure.errors import SearchIndexDamaged
from perdure.session.search.bm25 import Candidate, rank
from perdure.session.search.parts.lookup import Head, Looked, PartLookup, Read, Spoken
from perdure.session.search.parts.pages import DAMAGE, after, role_key
from perdure.session.search.parts.part_query import Asked
from perdure.session.search.phrase_text import counts_in_joined
from perdure.session.search.query import Sought
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.postgres.database import Connected, Database, Statement, run_statements
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Numbers, Row, Texts, is_text, place_of
from perdure.stores.postgres.search.indexer import (
    ENTRIES,
    NO_END,
    TITLES,
    Mark,
    ask_mark,
    found_in,
    mark_in,
    stream_key,
    tool_key,
)
from perdure.stores.scan import Fit, Found, fitting, hit_of, is_wanted

PAGE = MOST_RANKED
"""Entries behind the mark that are read at once."""

SHOWN = 128
"""Hits whose branches are looked up at once."""

_BEGIN: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_TAIL: LiteralString = ENTRIES + " ORDER BY e.n DESC LIMIT %s"

_LOOSE: LiteralString = """
SELECT n, length, filters, said FROM perdure.search
WHERE namespace = %s AND part = 0 AND at >= %s AND at < %s
"""

_PARTS: LiteralString = """
SELECT no, size, last FROM perdure.search_part
WHERE namespace = %s AND last_at >= %s AND first_at < %s
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

# OFFSET 0: see ``indexing.BEHIND``; and pages are looked up for each prefix, however few they are.
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

SAID: LiteralString = """
SELECT t.part, t.number, s.n, s.length, s.said
FROM unnest(%s::bigint[], %s::bigint[]) AS t (part, number)
CROSS JOIN LATERAL (
    SELECT n, length, said FROM perdure.search
    WHERE namespace = %s AND part = t.part AND number = t.number AND at >= %s AND at < %s
    LIMIT 1
) AS s
"""

_TEXTS: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.n FROM perdure.entry AS e WHERE e.namespace = %s AND e.n = ANY(%s)
"""  # noqa: S608 - put together from constants

_TITLES: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b WHERE b.namespace = %s AND b.n = ANY(%s)
"""

_ON_BRANCH: LiteralString = """
SELECT CASE WHEN s.leaf IS NULL OR e.run IS NULL THEN false ELSE perdure.is_on_branch(
    %s, t.of, t.seq, split_part(s.leaf, '/', 1), split_part(s.leaf, '/', 2)::bigint
) END
FROM unnest(%s::text[], %s::text[], %s::bigint[]) WITH ORDINALITY AS t (stream, of, seq, i)
LEFT JOIN perdure.stream AS s ON s.namespace = %s AND s.id = t.stream
LEFT JOIN perdure.entry AS e ON e.namespace = %s AND e.stream = t.of AND e.seq = t.seq
ORDER BY t.i
"""


async def hits(db: Database, query: SearchQuery, sought: Sought) -> list[Hit]:
    """What ``SearchService.search`` promises."""
    if query.sessions and not any(map(is_text, query.sessions)):
        return []
    async with _one_moment(db) as connected:
        search = _Search(connected, db, query, sought)
        return await search.hits(rank(await search.candidates()))


@asynccontextmanager
async def _one_moment(db: Database) -> AsyncGenerator[Connected]:
    async with db.connection() as connected:
        await connected.execute(_BEGIN)
        try:
            yield connected
        finally:
            await connected.rollback()


class _Search:
    """One search at one moment of the database."""

    def __init__(self, db: Connected, of: Database, query: SearchQuery, sought: Sought) -> None:
        self._db = db
        self._namespace = of.namespace
        self._address = of.address
        self._query = query
        self._sought = sought
        self._read: dict[int, Found] = {}

    async def candidates(self) -> list[Candidate]:
        """The newest `MOST_RANKED` that fit, from both sides of the mark.

        Raises: SearchIndexDamaged.
        """
        values = (self._namespace, *self._span())
        statements = [
            ask_mark(self._namespace),
            Statement(_PARTS, values),
            Statement(_LOOSE, values),
        ]
        marks, parts, loose = await run_statements(self._db, self._namespace, statements)
        mark = mark_in(marks)
        found = [each async for page in self._behind(mark) for each in page]
        filters = self._filters()
        if not mark.upto:  # there is no index, or one by other rules
            loose, parts = [], []
        try:
            found += await asyncio.to_thread(self._loose, loose, filters)
            heads = [Head(*row) for row in parts]
            finding = PartLookup(Asked(self._sought, filters), heads, found, MOST_RANKED)
            while step := finding.step():
                await self._do(finding, step)
        except DAMAGE as error:
            raise SearchIndexDamaged(self._address) from error
        return finding.candidates()

    async def _do(self, finding: PartLookup, step: Sequence[Head] | Sequence[Read]) -> None:
        heads = [each for each in step if isinstance(each, Head)]
        if heads:
            finding.look_up(heads, *await self._pages(finding.asked, heads))
            return
        wanted = [each for each in step if isinstance(each, Read)]
        parts, numbers = Numbers(t.part for t in wanted), Numbers(t.number for t in wanted)
        values = (parts, numbers, self._namespace, *self._span())
        finding.read(Spoken(*row) for row in await self._ask(Statement(SAID, values)))

    async def _pages(
        self, query: Asked, heads: Sequence[Head]
    ) -> tuple[Iterable[Looked], Iterable[Looked]]:
        ns, parts = self._namespace, Numbers(head.part for head in heads)
        begun = list[Row]()
        exact = await self._ask(Statement(EXACT, (parts, Texts(query.keys), ns)))
        if query.prefixes:
            ends = Texts(map(after, query.prefixes))
            begun = await self._ask(Statement(BEGUN, (parts, Texts(query.prefixes), ends, ns, ns)))
        return [Looked(*row) for row in exact], [Looked(*row) for row in begun]

    def _span(self) -> tuple[int, int]:
        since, until = self._query.since, self._query.until
        return (-NO_END if since is None else since, NO_END if until is None else until)

    def _filters(self) -> list[list[str]]:
        query = self._query
        return [
            [stream_key(stream) for stream in query.sessions],
            [role_key(role) for role in query.roles],
            [tool_key(tool) for tool in query.tools],
        ]

    def _loose(self, rows: Iterable[Row], filters: Sequence[Sequence[str]]) -> list[Candidate]:
        groups = [set(group) for group in filters if group]
        return [
            Candidate(position, counts, length)
            for position, length, own, said in rows
            if not groups or not any(group.isdisjoint(own.split()) for group in groups)
            if (counts := counts_in_joined(said.decode(), self._sought)) is not None
        ]

    async def hits(self, best: Sequence[tuple[float, Candidate]]) -> list[Hit]:
        """The first of `best` that are wanted; as many are read as are needed for that."""
        query, hits = self._query, list[Hit]()
        step = SHOWN if query.is_on_branch is not None else min(SHOWN, max(query.limit, 1))
        for start in range(0, len(best), step):
            if len(hits) >= query.limit:
                break
            found = await self._texts(best[start : start + step])
            flags = await _on_branch(self._db, self._namespace, [text for _, text in found])
            hits += await asyncio.to_thread(self._hits_of, found, flags)
        return hits[: max(query.limit, 0)]

    def _hits_of(self, found: Iterable[tuple[float, Found]], flags: Iterable[bool]) -> list[Hit]:
        return [
            hit_of(text, score, self._sought, is_on_branch=flag)
            for (score, text), flag in zip(found, flags, strict=True)
            if self._query.is_on_branch in (None, flag)
        ]

    async def _texts(self, best: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Found]]:
        """What `best` are, read now where they were found by the index."""
        unread = [each.position for _, each in best if each.position not in self._read]
        if unread:
            entries = Statement(_TEXTS, (self._namespace, Numbers(n for n in unread if n > 0)))
            titles = Statement(_TITLES, (self._namespace, Numbers(-n for n in unread if n < 0)))
            for rows in await run_statements(self._db, self._namespace, [entries, titles]):
                read = await asyncio.to_thread(_found_in, rows)
                self._read.update((found.position, found) for found in read)
        texts = [(score, self._read.get(each.position)) for score, each in best]
        return [(score, text) for score, text in texts if text and is_wanted(text, self._query)]

    async def _behind(self, mark: Mark) -> AsyncIterator[list[Candidate]]:
        """What fits and is not indexed."""
        async for page in self._tail(mark):
            yield await self._fitting(page)
        after_n = mark.upto
        while True:
            statement = Statement(TITLES, (self._namespace, after_n, NO_END, PAGE))
            rows = await self._ask(statement)
            yield await self._fitting(rows)
            if len(rows) < PAGE:
                return
            after_n = rows[-1][-1]

    async def _fitting(self, rows: Sequence[Row]) -> list[Candidate]:
        """Those of `rows` of the log that fit. A thread looks: one of them may be very long."""
        if not rows:
            return []
        fits = await asyncio.to_thread(self._fits_in, rows)
        self._read.update((found.position, found) for found, _ in fits)
        return [candidate for _, candidate in fits]

    def _fits_in(self, rows: Sequence[Row]) -> list[Fit]:
        return list(fitting(_found_in(rows), self._query, self._sought))

    async def _tail(self, mark: Mark) -> AsyncIterator[list[Row]]:
        below = NO_END
        while True:
            values = (self._namespace, mark.upto, below - 1, list(KINDS), PAGE)
            rows = await self._ask(Statement(_TAIL, values))
            yield rows
            if len(rows) < PAGE:
                return
            below = rows[-1][-1]

    async def _ask(self, statement: Statement) -> list[Row]:
        (rows,) = await run_statements(self._db, self._namespace, [statement])
        return rows


def _found_in(rows: Iterable[Row]) -> list[Found]:
    return [found for row in rows if (found := found_in(row)) is not None]


async def _on_branch(db: Connected, namespace: str, texts: Sequence[Found]) -> list[bool]:
    """Which of `texts` are, or are about what is, on the current branch of their session."""
    targets = [found.target for found in texts]
    places = [None if target is None else place_of(target) for target in targets]
    asked_for = [
        (found.stream, *place)
        for found, place in zip(texts, places, strict=True)
        if place is not None
    ]
    streams, of, seqs = zip(*asked_for, strict=True) if asked_for else ((), (), ())
    values = (namespace, Texts(streams), Texts(of), Numbers(seqs), namespace, namespace)
    (rows,) = await run_statements(db, namespace, [Statement(_ON_BRANCH, values)])
    known = iter([bool(row[0]) for row in rows])
    return [
        target is None or (place is not None and next(known))
        for target, place in zip(targets, places, strict=True)
    ]
