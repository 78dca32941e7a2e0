"""Searching a database: candidates out of the index and, behind its mark, out of the log.

The index gives texts that may fit, each with its words in order; which fit and what comes first is
decided by these (``session.search``), so that every backend finds the same, and only what is shown
is read from the log. All of a search but its hits' branches is read at one moment: nobody who
indexes, or builds the index anew, can be seen half done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString

from perdure.session.search.joined import counts_in_joined
from perdure.session.search.query import Sought
from perdure.session.search.ranking import Candidate, ranked
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.postgres.database import Connected, Database, Question, asked
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Numbers, Row, Texts, is_text, place_of
from perdure.stores.postgres.search.asking import certain, tsquery
from perdure.stores.postgres.search.indexing import (
    BLOCK_TEXTS,
    ENTRIES,
    NO_END,
    TITLES,
    Mark,
    ask_mark,
    block_word,
    found_in,
    mark_in,
)
from perdure.stores.scanning import Found, fitting, hit_of, is_wanted

PAGE = MOST_RANKED
"""Candidates that are read at once."""

SHOWN = 128
"""Hits whose branches are looked up at once."""

_BEGIN: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_TAIL: LiteralString = ENTRIES + " ORDER BY e.n DESC LIMIT %s"

_MATCHES: LiteralString = "SELECT * FROM perdure.matches(%s, %s, %s, %s, %s, %s)"

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
    """What ``Searching.search`` promises."""
    if query.sessions and not any(map(is_text, query.sessions)):
        return []
    async with _one_moment(db) as connected:
        search = _Search(connected, db.namespace, query, sought)
        return await search.hits(ranked(await search.candidates()))


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

    def __init__(self, db: Connected, namespace: str, query: SearchQuery, sought: Sought) -> None:
        self._db = db
        self._namespace = namespace
        self._query = query
        self._sought = sought
        self._read: dict[int, Found] = {}

    async def candidates(self) -> list[Candidate]:
        """The newest `MOST_RANKED` that fit."""
        fit: list[Candidate] = []
        async for page in self._pages():
            fit += page
            if len(fit) >= MOST_RANKED:
                break
        return fit[:MOST_RANKED]

    async def hits(self, best: Sequence[tuple[float, Candidate]]) -> list[Hit]:
        """The first of `best` that are wanted; as many are read as are needed for that."""
        query, hits = self._query, list[Hit]()
        step = SHOWN if query.is_on_branch is not None else min(SHOWN, max(query.limit, 1))
        for start in range(0, len(best), step):
            if len(hits) >= query.limit:
                break
            found = await self._texts(best[start : start + step])
            flags = await _on_branch(self._db, self._namespace, [text for _, text in found])
            for (score, text), flag in zip(found, flags, strict=True):
                if query.is_on_branch in (None, flag):
                    hits.append(hit_of(text, score, self._sought, is_on_branch=flag))
        return hits[: max(query.limit, 0)]

    async def _texts(self, best: Sequence[tuple[float, Candidate]]) -> list[tuple[float, Found]]:
        """What `best` are, read now where they were found by the index."""
        unread = [each.position for _, each in best if each.position not in self._read]
        if unread:
            entries = Question(_TEXTS, (self._namespace, Numbers(n for n in unread if n > 0)))
            titles = Question(_TITLES, (self._namespace, Numbers(-n for n in unread if n < 0)))
            for rows in await asked(self._db, self._namespace, [entries, titles]):
                self._read.update((found.position, found) for found in _found_in(rows))
        texts = [(score, self._read.get(each.position)) for score, each in best]
        return [(score, text) for score, text in texts if text and is_wanted(text, self._query)]

    async def _pages(self) -> AsyncIterator[list[Candidate]]:
        """What fits, the newest entries first, then titles; from both sides of the mark."""
        (rows,) = await asked(self._db, self._namespace, [ask_mark(self._namespace)])
        mark = mark_in(rows)
        async for page in self._tail(mark):
            yield self._fitting(page)
        async for page in self._indexed(mark):
            yield page
        after = mark.upto
        while True:
            question = Question(TITLES, (self._namespace, after, NO_END, PAGE))
            rows = await self._ask(question)
            yield self._fitting(rows)
            if len(rows) < PAGE:
                return
            after = rows[-1][-1]

    def _fitting(self, rows: Sequence[Row]) -> list[Candidate]:
        """Those of `rows` of the log that fit."""
        fits = list(fitting(_found_in(rows), self._query, self._sought))
        self._read.update((found.position, found) for found, _ in fits)
        return [candidate for _, candidate in fits]

    async def _tail(self, mark: Mark) -> AsyncIterator[list[Row]]:
        below = NO_END
        while True:
            values = (self._namespace, mark.upto, below - 1, list(KINDS), PAGE)
            rows = await self._ask(Question(_TAIL, values))
            yield rows
            if len(rows) < PAGE:
                return
            below = rows[-1][-1]

    async def _indexed(self, mark: Mark) -> AsyncIterator[list[Candidate]]:
        """The newest blocks by themselves: a word that is everywhere has its hits there."""
        last = max(mark.texts - 1, 0) // BLOCK_TEXTS
        newest = [block_word(last), block_word(last - 1)]
        if last > 1:
            async for page in self._matches(tsquery(self._query, self._sought, only=newest)):
                yield page
        old = newest if last > 1 else []
        async for page in self._matches(tsquery(self._query, self._sought, others_than=old)):
            yield page

    async def _matches(self, question: str) -> AsyncIterator[list[Candidate]]:
        query, sought = self._query, self._sought
        since = -NO_END if query.since is None else query.since
        until = NO_END if query.until is None else query.until
        below = NO_END
        while True:
            values = (question, below, since, until, certain(sought), PAGE)
            rows = await self._ask(Question(_MATCHES, values))
            yield [
                Candidate(position, counts, length)
                for position, stream, length, said in rows
                if not query.sessions or stream in query.sessions
                if (counts := counts_in_joined(said, sought)) is not None
            ]
            if len(rows) < PAGE:
                return
            below = rows[-1][0]

    async def _ask(self, question: Question) -> list[Row]:
        (rows,) = await asked(self._db, self._namespace, [question])
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
    (rows,) = await asked(db, namespace, [Question(_ON_BRANCH, values)])
    known = iter([bool(row[0]) for row in rows])
    return [
        target is None or (place is not None and next(known))
        for target, place in zip(targets, places, strict=True)
    ]
