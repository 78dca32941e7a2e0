"""Whether the index says what the log says, word for word: the part of ``verify`` about search.

First each word's sum over all places where it stands is compared with the one the log gives; only
words whose sums differ are then looked at place by place, to name the entries. The index is one for
the whole file, so the sums are over all namespaces; named are only entries of the one verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain

import apsw

from perdure.session.search.words import VERSION, terms
from perdure.stores.protocol import Problem
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.search.indexing import (
    Document,
    Mark,
    document_at,
    entries,
    mark_of,
    places_of,
    titles,
)

MOST_WORDS = 200
"""Words whose places are looked at one by one; a damaged index has few or very many."""

_P, _Q, _M = 2_654_435_761, 40_503, 4_294_967_291

_SUMS = f"""
SELECT term, sum((doc * {_P} + offset * {_Q} + (col = 'place')) % {_M}), count(*)
FROM search_word GROUP BY term
"""  # noqa: S608 - put together from constants

_PLACES = "SELECT doc, col = 'place', offset FROM search_word WHERE term = ?"

_Sums = dict[str, tuple[int, int]]
_Places = set[tuple[int, int]]
"""Column (1: place) and number of a word in a row."""

_REMEDY = "`perdure store reindex` builds the index anew"


def look_again(tables: Tables) -> None:
    """Let this connection notice what others did to the index.

    ``PRAGMA quick_check`` and ``integrity_check`` look through what FTS5 remembers of an earlier
    moment, and report damage where another connection has emptied the index since; opening the
    table makes it forget. To be called before them, in the same transaction.
    """
    with suppress(apsw.Error):  # the check that follows says what is wrong
        tables.row("SELECT rowid FROM search LIMIT 1")


def index_problems(tables: Tables, namespace: str) -> Iterator[Problem]:
    """Every difference between the index and the log up to its mark."""
    number = tables.value("SELECT no FROM namespace WHERE name = ?", namespace)
    try:
        kept = tables.value("SELECT version FROM search_mark")
        if kept == VERSION:
            yield from _Check(tables, number).problems()
    except (apsw.Error, UnicodeDecodeError, TypeError, ValueError) as error:
        yield Problem(None, None, f"the search index cannot be read ({error}); {_REMEDY}")


class _Check:
    """One comparison. `_namespace` None: nobody has written in it."""

    def __init__(self, tables: Tables, namespace: int | None) -> None:
        self._tables = tables
        self._namespace = namespace
        self._mark: Mark = mark_of(tables)
        self._rows: dict[int, int] = {}

    def problems(self) -> Iterator[Problem]:
        """Every difference."""
        expected = self._expected_sums()
        kept: _Sums = {row[0]: (row[1], row[2]) for row in self._tables.rows(_SUMS)}
        differing = [word for word in {**expected, **kept} if expected.get(word) != kept.get(word)]
        rows = self._differing_rows(differing[:MOST_WORDS]) if differing else set[int]()
        for row in sorted(rows | self._rows_of_other_times()):
            yield from self._problem_of(row)
        if differing and not rows:
            text = f"{len(differing)} words are counted wrongly in the search index; {_REMEDY}"
            yield Problem(None, None, text)

    def _documents(self) -> Iterable[Document]:
        mark = self._mark
        return chain(entries(self._tables, 0, mark.entry), titles(self._tables, 0, mark.stream))

    def _expected_sums(self) -> _Sums:
        sums: _Sums = {}
        for document in self._documents():
            self._rows[document.row] = document.at
            for column, words in enumerate(_columns(document)):
                base = document.row * _P + column
                for offset, word in enumerate(words):
                    value = base + offset * _Q
                    # As SQLite does it: the remainder has the sign of the value.
                    hashed = value % _M if value >= 0 else -(-value % _M)
                    total, count = sums.get(word, (0, 0))
                    sums[word] = (total + hashed, count + 1)
        return sums

    def _differing_rows(self, words: Iterable[str]) -> set[int]:
        """The rows that have one of `words` in another place than they should."""
        kept: dict[str, dict[int, _Places]] = {word: {} for word in words}
        for word, rows in kept.items():
            for row, column, offset in self._tables.rows(_PLACES, word):
                rows.setdefault(row, set()).add((column, offset))
        found: set[int] = set()
        for document in self._documents():
            expected: dict[str, _Places] = {}
            for column, standing in enumerate(_columns(document)):
                for offset, word in enumerate(standing):
                    if word in kept:
                        expected.setdefault(word, set()).add((column, offset))
            for word, rows in kept.items():
                if rows.pop(document.row, set()) != expected.get(word, set()):
                    found.add(document.row)
        return found.union(*(rows.keys() for rows in kept.values()))

    def _rows_of_other_times(self) -> set[int]:
        kept = {row[0]: row[1] for row in self._tables.rows("SELECT n, at FROM search_time")}
        return {row for row in {**kept, **self._rows} if kept.get(row) != self._rows.get(row)}

    def _problem_of(self, row: int) -> Iterator[Problem]:
        document = document_at(self._tables, row)
        if document is None:
            text = f"the search index holds words of what is not in the log (row {row}); {_REMEDY}"
            yield Problem(None, None, text)
        elif document.namespace == self._namespace:
            seq = None if document.entry is None else document.entry.seq
            what = "its title" if document.entry is None else "it"
            text = f"{what} is not in the search index as it is in the log; {_REMEDY}"
            yield Problem(document.stream_id, seq, text)


def _columns(document: Document) -> tuple[list[str], list[str]]:
    return terms(document.what.text), places_of(document)
