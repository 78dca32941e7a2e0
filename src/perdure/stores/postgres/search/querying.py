"""Searching a database: candidates out of the index and, behind its mark, out of the log.

The index gives texts that hold the words; whether these stand side by side, how often, and in what
order the texts are shown is decided by the texts themselves (``stores.scanning``,
``session.search``), so that every backend finds the same. All of a search but its hits' branches is
read at one moment: nobody who indexes, or builds the index anew, can be seen half done.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import LiteralString

from perdure.session.search.query import Phrase, Sought
from perdure.session.search.searchable import KINDS
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.postgres.database import Connected, Database, Question, asked
from perdure.stores.postgres.rows import Numbers, Row, Texts, is_text, place_of
from perdure.stores.postgres.search.indexing import (
    BLOCK_TEXTS,
    ENTRIES,
    LONG,
    NO_END,
    TITLES,
    Mark,
    ask_mark,
    block_word,
    found_in,
    mark_in,
    pair_words,
    role_word,
    stream_word,
    tool_word,
)
from perdure.stores.scanning import Fit, Found, best_of, fitting, hit_of

PAGE = MOST_RANKED
"""Candidates that are read at once."""

SHOWN = 128
"""Hits whose branches are looked up at once."""

_BEGIN: LiteralString = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"

_TAIL: LiteralString = ENTRIES + " ORDER BY e.n DESC LIMIT %s"

_MATCHES: LiteralString = "SELECT * FROM perdure.matches(%s, %s, %s, %s, %s, %s)"

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
        fits = await search.fits()
        return await _shown(connected, db.namespace, fits, query, sought)


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

    async def fits(self) -> list[Fit]:
        """The newest `MOST_RANKED` that fit."""
        fits: list[Fit] = []
        async for page in self._candidates():
            fits += fitting(page, self._query, self._sought)
            if len(fits) >= MOST_RANKED:
                break
        return fits[:MOST_RANKED]

    async def _candidates(self) -> AsyncIterator[list[Found]]:
        """Entries, the newest first, then titles; from both sides of the mark."""
        (rows,) = await asked(self._db, self._namespace, [ask_mark(self._namespace)])
        mark = mark_in(rows)
        async for page in self._tail(mark):
            yield page
        async for page in self._indexed(mark):
            yield page
        after = mark.upto
        while True:
            question = Question(TITLES, (self._namespace, after, NO_END, PAGE))
            rows = await self._ask(question)
            yield _found_in(rows)
            if len(rows) < PAGE:
                return
            after = rows[-1][-1]

    async def _tail(self, mark: Mark) -> AsyncIterator[list[Found]]:
        below = NO_END
        while True:
            values = (self._namespace, mark.upto, below - 1, list(KINDS), PAGE)
            rows = await self._ask(Question(_TAIL, values))
            yield _found_in(rows)
            if len(rows) < PAGE:
                return
            below = rows[-1][-1]

    async def _indexed(self, mark: Mark) -> AsyncIterator[list[Found]]:
        """The newest blocks by themselves: a word that is everywhere has its hits there."""
        last = max(mark.texts - 1, 0) // BLOCK_TEXTS
        newest = [block_word(last), block_word(last - 1)]
        if last > 1:
            async for page in self._matches(_tsquery(self._query, self._sought, only=newest)):
                yield page
        old = newest if last > 1 else []
        async for page in self._matches(_tsquery(self._query, self._sought, others_than=old)):
            yield page

    async def _matches(self, tsquery: str) -> AsyncIterator[list[Found]]:
        ns, query = self._namespace, self._query
        since = -NO_END if query.since is None else query.since
        until = NO_END if query.until is None else query.until
        below = NO_END
        while True:
            values = (ns, tsquery, below, since, until, PAGE)
            rows = await self._ask(Question(_MATCHES, values))
            yield _found_in([_as_indexed(row) for row in rows])
            if len(rows) < PAGE:
                return
            below = rows[-1][9]

    async def _ask(self, question: Question) -> list[Row]:
        (rows,) = await asked(self._db, self._namespace, [question])
        return rows


def _found_in(rows: Iterable[Row]) -> list[Found]:
    return [found for row in rows if (found := found_in(row)) is not None]


def _as_indexed(row: Row) -> Row:
    """A row of `_MATCHES` as one of `ENTRIES` or `TITLES`."""
    position, header = row[9:]
    return row[:10] if header is None else (header, -position)


async def _shown(
    db: Connected, namespace: str, fits: Sequence[Fit], query: SearchQuery, sought: Sought
) -> list[Hit]:
    """The best hits, with the branches of as many as are needed."""
    best, hits = best_of(fits), list[Hit]()
    step = SHOWN if query.is_on_branch is not None else min(SHOWN, max(query.limit, 1))
    for start in range(0, len(best), step):
        if len(hits) >= query.limit:
            break
        part = best[start : start + step]
        flags = await _on_branch(db, namespace, [found for found, _ in part])
        for (found, score), flag in zip(part, flags, strict=True):
            if query.is_on_branch in (None, flag):
                hits.append(hit_of(found, score, sought, is_on_branch=flag))
    return hits[: max(query.limit, 0)]


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


# ---------------------------------------------------------------- the query in words of the index


def _tsquery(
    query: SearchQuery,
    sought: Sought,
    *,
    only: Sequence[str] = (),
    others_than: Sequence[str] = (),
) -> str:
    """What every text that fits holds; the words are quoted, so none means anything else."""
    filters = [
        [stream_word(stream) for stream in query.sessions],
        [role_word(role) for role in query.roles],
        [tool_word(tool) for tool in query.tools],
        list(only),
    ]
    parts = [_any(map(_quoted, group)) for group in filters if group]
    wanted = [_any(map(_phrase, clause)) for clause in sought.clauses]
    unwanted = [f"!{_phrase(phrase)}" for phrase in sought.unwanted if len(phrase.terms) == 1]
    parts.append(f"(({' & '.join([*wanted, *unwanted])}) | {_quoted(LONG)})")
    parts += [f"!{_quoted(word)}" for word in others_than]
    return " & ".join(parts)


def _any(parts: Iterable[str]) -> str:
    return f"({' | '.join(parts)})"


def _phrase(phrase: Phrase) -> str:
    """Its words and, of those that are whole, its neighbours."""
    whole_terms = phrase.terms[:-1] if phrase.is_prefix else phrase.terms
    pairs = sorted(pair_words(whole_terms))
    whole = map(_quoted, dict.fromkeys((*phrase.terms[:-1], *pairs)))
    ending = _quoted(phrase.terms[-1]) + (":*" if phrase.is_prefix else "")
    return f"({' & '.join([*whole, ending])})"


def _quoted(word: str) -> str:
    """Words hold letters and digits, those for the filters ``=`` besides: never a quote."""
    return f"'{word}'"
