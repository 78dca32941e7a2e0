"""Whether the index says what the log says: the part of ``verify`` about search.

Each part is compared with what would be built from the log; what is in no part, word for word.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import apsw

from perdure.session.search.parts.comparison import differing, is_same
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.words import VERSION
from perdure.stores.protocol import Problem
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.search.indexer import (
    Document,
    Mark,
    document_at,
    kept_mark,
    mark_of,
    missing,
    missing_titles,
    number_of_namespace,
    text_of,
)
from perdure.stores.sqlite.search.parts import homeless_texts, loose_text, part_of
from perdure.stores.verification import Steps

_PARTS = """
SELECT no, size, last, first_at, last_at FROM search_part WHERE namespace = ? ORDER BY no
"""

_LOOSE = """
SELECT n, at, filters, said, length FROM search_loose WHERE namespace = ? ORDER BY n
"""

_REMEDY = "Store.reindex builds the index anew"


def indexed_texts(tables: Tables, namespace: str) -> int:
    """How many texts the parts of the index hold: each is a step of `index_problems`."""
    number = number_of_namespace(tables, namespace)
    sql = "SELECT coalesce(sum(size), 0) FROM search_part WHERE namespace = ?"
    return int(tables.value(sql, number))


def index_problems(tables: Tables, namespace: str, steps: Steps) -> Iterator[Problem]:
    """Every difference between the index and the log up to its mark."""
    try:
        number = number_of_namespace(tables, namespace)
        if number is not None and kept_mark(tables, number).version == VERSION:
            yield from _Check(tables, number, steps).problems()
    except (apsw.Error, *DAMAGE) as error:
        yield Problem(None, None, f"the search index cannot be read ({error}); {_REMEDY}")


class _Check:
    """One comparison."""

    def __init__(self, tables: Tables, namespace: int, steps: Steps) -> None:
        self._steps = steps
        self._tables = tables
        self._namespace = namespace
        self._mark: Mark = mark_of(tables, namespace)

    def problems(self) -> Iterator[Problem]:
        """Every difference."""
        parts = [self._of_part(*row) for row in self._tables.rows(_PARTS, self._namespace)]
        wrong = {*chain.from_iterable(parts), *self._of_loose(), *homeless_texts(self._tables)}
        for row in sorted(wrong):
            yield from self._problem_of(row)
        place, mark = (self._tables, self._namespace), self._mark
        for document in chain(missing(*place, mark.entry), missing_titles(*place, mark.stream)):
            if document.row not in wrong:
                yield from self._difference(document)

    def _of_part(self, number: int, *head: int) -> set[int]:
        part = part_of(self._tables, number)
        self._steps.add(len(part.said))
        positions = {said.position for said in part.said}
        texts = {row: text_of(found) for row, found in self._log(positions)}
        ats = [said.at for said in part.said] or [0]
        last = part.said[-1].position if part.said else 0
        is_head_right = list(head) == [len(part.said), last, min(ats), max(ats)]
        return differing(part, texts) or (set() if is_head_right else positions)

    def _of_loose(self) -> set[int]:
        wrong: set[int] = set()
        for row in self._tables.rows(_LOOSE, self._namespace):
            text = loose_text(row)
            found = next(self._log([text.position]), None)
            if found is None or not is_same(text, text_of(found[1])) or row[4] != len(text.words):
                wrong.add(text.position)
        return wrong

    def _log(self, positions: Iterable[int]) -> Iterator[tuple[int, Document]]:
        """What the log says at `positions` that are not behind the mark."""
        for row in positions:
            is_indexed = row <= self._mark.entry and -row <= self._mark.stream
            document = document_at(self._tables, self._namespace, row) if is_indexed else None
            if document is not None:
                yield row, document

    def _problem_of(self, row: int) -> Iterator[Problem]:
        document = document_at(self._tables, self._namespace, row)
        if document is None:
            text = f"the search index holds words of what is not in the log (row {row}); {_REMEDY}"
            yield Problem(None, None, text)
        else:
            yield from self._difference(document)

    def _difference(self, document: Document) -> Iterator[Problem]:
        seq = None if document.entry is None else document.entry.seq
        what = "its title" if document.entry is None else "it"
        text = f"{what} is not in the search index as it is in the log; {_REMEDY}"
        yield Problem(document.stream_id, seq, text)
