"""Whether the index says what the log says: the part of ``verify`` about search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import LiteralString

from perdure.session.search.joined import joined
from perdure.session.search.searchable import KINDS
from perdure.session.search.words import VERSION, terms
from perdure.stores.postgres.database import Question
from perdure.stores.postgres.rows import ENTRY_COLUMNS, Row
from perdure.stores.postgres.search.indexing import (
    ask_mark,
    block_word,
    found_in,
    namespace_word,
    words_of,
)
from perdure.stores.protocol import Problem
from perdure.stores.scanning import Found

_ENTRIES: LiteralString = f"""
SELECT i.at, string_to_array(i.words, ' '), i.said, i.length, {ENTRY_COLUMNS}, e.n
FROM perdure.entry AS e
JOIN perdure.stream AS s ON s.namespace = e.namespace AND s.id = e.stream AND s.kind = 'session'
LEFT JOIN perdure.search AS i ON i.namespace = e.namespace AND i.n = e.n
WHERE e.namespace = %s AND e.n <= %s AND e.kind = ANY(%s) ORDER BY e.n
"""  # noqa: S608 - put together from constants

_TITLES: LiteralString = """
SELECT i.at, string_to_array(i.words, ' '), i.said, i.length, b.header, b.n FROM perdure.birth AS b
LEFT JOIN perdure.search AS i ON i.namespace = b.namespace AND i.n = -b.n
WHERE b.namespace = %s AND b.n <= %s ORDER BY b.n
"""

_STRAYS: LiteralString = """
SELECT i.stream, i.n FROM perdure.search AS i
WHERE i.namespace = %s AND (i.n > %s OR i.n < -%s OR NOT (
    EXISTS (
        SELECT FROM perdure.entry AS e
        WHERE e.namespace = i.namespace AND e.n = i.n AND e.kind = ANY(%s)
    ) OR EXISTS (
        SELECT FROM perdure.birth AS b WHERE b.namespace = i.namespace AND b.n = -i.n
    )
)) ORDER BY i.n
"""

_BLOCK = block_word(0)[:2]
_REMEDY = "`perdure store reindex` builds the index anew"

Streamed = Callable[[Question], Iterator[Row]]


def index_problems(streamed: Streamed, namespace: str) -> Iterator[Problem]:
    """Every difference between the index and the log up to its mark."""
    rows = list(streamed(ask_mark(namespace)))
    if not rows or rows[0][0] != VERSION:
        return  # the next search builds it
    upto = rows[0][1]
    own = namespace_word(namespace)
    entries = Question(_ENTRIES, (namespace, upto, list(KINDS)))
    for question in (entries, Question(_TITLES, (namespace, upto))):
        for at, words, said, length, *row in streamed(question):
            found = found_in(tuple(row))
            expected = None if found is None else _expected(found, own)
            kept = None if words is None else (at, said, length, set(words))
            if _without_block(expected) != _without_block(kept):
                yield _difference(tuple(row))
    strays = Question(_STRAYS, (namespace, upto, upto, list(KINDS)))
    for stream, position in streamed(strays):
        text = f"the search index holds words of what is not in the log ({position}); {_REMEDY}"
        yield Problem(stream, None, text)


_Indexed = tuple[int, str, int, set[str]]
"""When, the words in order, how many, and by which it is found."""


def _expected(found: Found, own: str) -> _Indexed:
    said = terms(found.what.text)
    return found.at, joined(said), len(said), {own, *words_of(found, said, 0)}


def _without_block(indexed: _Indexed | None) -> tuple[int, str, int, set[str], bool] | None:
    """What is indexed; of its block only that it has one: numbers shift with erasures."""
    if indexed is None:
        return None
    at, said, length, words = indexed
    blocks = {word for word in words if word.startswith(_BLOCK)}
    return at, said, length, words - blocks, len(blocks) == 1


def _difference(row: Row) -> Problem:
    if len(row) > 2:
        return Problem(row[0], row[1], f"it is not in the search index as in the log; {_REMEDY}")
    found = found_in(row)
    stream = None if found is None else found.stream
    return Problem(stream, None, f"its title is not in the search index as in the log; {_REMEDY}")
