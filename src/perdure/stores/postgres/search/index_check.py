"""Whether the index says what the log says: the part of ``verify`` about search."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import LiteralString

from perdure.session.search.parts.builder import Part, Said
from perdure.session.search.parts.comparison import differing, is_same
from perdure.session.search.parts.pages import DAMAGE, Page
from perdure.session.search.searchable import KINDS
from perdure.session.search.words import VERSION
from perdure.stores.postgres.database import Statement
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Numbers, Row
from perdure.stores.postgres.search.indexer import ask_mark, found_in, text_of
from perdure.stores.postgres.search.parts import PAGES, SAID, loose_text
from perdure.stores.protocol import Problem
from perdure.stores.scan import Found
from perdure.stores.verification import Steps

SOME = 500
"""Loose texts that are in memory at a time."""

_PARTS: LiteralString = """
SELECT no, size, last, first_at, last_at FROM perdure.search_part WHERE namespace = %s ORDER BY no
"""

INDEXED_TEXTS: LiteralString = """
SELECT coalesce(sum(size), 0) FROM perdure.search_part WHERE namespace = %s
"""
"""How many texts the parts of the index hold: each is a step of `index_problems`."""

_LOOSE: LiteralString = """
SELECT n, at, filters, said FROM perdure.search
WHERE namespace = %s AND part = 0 AND n > %s ORDER BY n LIMIT %s
"""

_HOMELESS: LiteralString = """
SELECT s.n FROM perdure.search AS s WHERE s.namespace = %s AND s.part <> 0 AND NOT EXISTS (
    SELECT FROM perdure.search_part AS p WHERE p.namespace = %s AND p.no = s.part
) ORDER BY s.n
"""

_ENTRIES: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.n FROM perdure.entry AS e
JOIN perdure.stream AS s ON s.namespace = e.namespace AND s.id = e.stream AND s.kind = 'session'
WHERE e.namespace = %s AND e.n = ANY(%s) AND e.kind = ANY(%s)
"""  # noqa: S608 - put together from constants

_TITLES: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b WHERE b.namespace = %s AND b.n = ANY(%s)
"""

_MISSING: LiteralString = f"""
SELECT {ENTRY_COLUMNS}, e.n FROM perdure.entry AS e
JOIN perdure.stream AS s ON s.namespace = e.namespace AND s.id = e.stream AND s.kind = 'session'
WHERE e.namespace = %s AND e.n <= %s AND e.kind = ANY(%s) AND NOT EXISTS (
    SELECT FROM perdure.search AS i WHERE i.namespace = %s AND i.n = e.n
) ORDER BY e.n
"""  # noqa: S608 - put together from constants

_MISSING_TITLES: LiteralString = """
SELECT b.header, b.n FROM perdure.birth AS b
WHERE b.namespace = %s AND b.n <= %s AND NOT EXISTS (
    SELECT FROM perdure.search AS i WHERE i.namespace = %s AND i.n = -b.n
) ORDER BY b.n
"""

_REMEDY = "Store.reindex builds the index anew"

Streamed = Callable[[Statement], Iterator[Row]]


def index_problems(streamed: Streamed, namespace: str, steps: Steps) -> Iterator[Problem]:
    """Every difference between the index and the log up to its mark."""
    rows = list(streamed(ask_mark(namespace)))
    if rows and rows[0][0] == VERSION:  # else the next search builds it
        yield from _Check(streamed, namespace, rows[0][1], steps).problems()


class _Check:
    """One comparison, up to the position `upto`."""

    def __init__(self, streamed: Streamed, namespace: str, upto: int, steps: Steps) -> None:
        self._steps = steps
        self._streamed = streamed
        self._namespace = namespace
        self._upto = upto

    def problems(self) -> Iterator[Problem]:
        """Every difference."""
        for row in list(self._streamed(Statement(_PARTS, (self._namespace,)))):
            yield from self._of_part(row)
        yield from self._of_loose()
        yield from self._missing()
        ns = self._namespace
        for (position,) in self._streamed(Statement(_HOMELESS, (ns, ns))):
            yield _stray(position)

    def _of_part(self, row: Row) -> Iterator[Problem]:
        number, *head = row
        own = (self._namespace, number)
        said = tuple([Said(*row[1:]) for row in self._streamed(Statement(SAID, own))])
        self._steps.add(len(said))
        pages = tuple([Page(*row) for row in self._streamed(Statement(PAGES, own))])
        log = self._log(text.position for text in said)
        texts = {position: text_of(found) for position, found in log.items()}
        found = differing(Part(said, pages), texts)
        ats = [text.at for text in said] or [0]
        last = said[-1].position if said else 0
        if not found and head != [len(said), last, min(ats), max(ats)]:
            found = set(texts)
        yield from self._differences(found, log)

    def _of_loose(self) -> Iterator[Problem]:
        after = -(2**62)
        while rows := list(self._streamed(Statement(_LOOSE, (self._namespace, after, SOME)))):
            after = rows[-1][0]
            log = self._log(row[0] for row in rows)
            wrong = {row[0] for row in rows if not _is_as_in(log, row)}
            yield from self._differences(wrong, log)

    def _missing(self) -> Iterator[Problem]:
        ns, upto = self._namespace, self._upto
        entries = Statement(_MISSING, (ns, upto, list(KINDS), ns))
        for statement in (entries, Statement(_MISSING_TITLES, (ns, upto, ns))):
            for row in self._streamed(statement):
                found = found_in(row)
                if found is not None:
                    yield _difference(found)

    def _log(self, positions: Iterable[int]) -> dict[int, Found]:
        """What the log says at `positions`, by position."""
        asked = list(positions)
        entries = Numbers(n for n in asked if n > 0)
        births = Numbers(-n for n in asked if n < 0)
        rows = [
            *self._streamed(Statement(_ENTRIES, (self._namespace, entries, list(KINDS)))),
            *self._streamed(Statement(_TITLES, (self._namespace, births))),
        ]
        read = (found_in(row) for row in rows)
        return {found.position: found for found in read if found is not None}

    def _differences(self, positions: set[int], log: dict[int, Found]) -> Iterator[Problem]:
        for position in sorted(positions):
            found = log.get(position)
            yield _stray(position) if found is None else _difference(found)


def _is_as_in(log: Mapping[int, Found], row: Row) -> bool:
    found = log.get(row[0])
    try:
        return found is not None and is_same(loose_text(row), text_of(found))
    except DAMAGE:
        return False


def _difference(found: Found) -> Problem:
    if found.entry is None:
        text = f"its title is not in the search index as in the log; {_REMEDY}"
        return Problem(found.stream, None, text)
    text = f"it is not in the search index as in the log; {_REMEDY}"
    return Problem(found.stream, found.entry.seq, text)


def _stray(position: int) -> Problem:
    text = f"the search index holds words of what is not in the log ({position}); {_REMEDY}"
    return Problem(None, None, text)
