"""Compare a search index with the log, as part of ``verify``.

Each stored index part is compared with the part that would be built from the log. Texts that are in
no index part are compared word by word.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Iterator, Sequence

from perdure.session.search.parts.blocks import block_rows
from perdure.session.search.parts.builder import Text
from perdure.session.search.parts.comparison import differing, is_same
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.words import VERSION
from perdure.stores.protocol import Problem
from perdure.stores.scan import Found
from perdure.stores.search.index_keys import text_of
from perdure.stores.search.rows import IndexedLog, IndexReader, LooseRow, Mark, PartRow, part_row
from perdure.stores.verification import Steps

REMEDY = "Store.reindex rebuilds the index"

SOME = 500
"""Number of texts in memory at a time, apart from those of one part."""


async def index_problems(
    index: IndexReader,
    log: IndexedLog,
    steps: Steps,
    ignored: Collection[int] = frozenset(),
) -> list[Problem]:
    """Return every difference between the index and the indexed part of the log.

    Differences at the positions `ignored` are not reported.
    """
    mark = await index.mark()
    if mark.version != VERSION:  # the next search builds it
        return []
    return await _Check(index, log, mark, steps).problems(ignored)


class SortedPositions(Container[int]):
    """Sorted positions of texts; each position needs 8 bytes of memory."""

    def __init__(self, positions: Iterable[int]) -> None:
        self._sorted = array("q", sorted(positions))

    def __contains__(self, position: object) -> bool:
        if not isinstance(position, int):
            return False
        place = bisect_left(self._sorted, position)
        return place < len(self._sorted) and self._sorted[place] == position


class _Check:
    """Compares one index with its log."""

    def __init__(self, index: IndexReader, log: IndexedLog, mark: Mark, steps: Steps) -> None:
        self._index = index
        self._log = log
        self._mark = mark
        self._steps = steps
        self._indexed = array("q")
        self._starts: dict[int, list[tuple[int, int]]] = {}
        self._is_damaged = False

    async def problems(self, ignored: Collection[int]) -> list[Problem]:
        """Return every difference, except at the positions `ignored`."""
        wrong = set[int]()
        homeless = await self._index.homeless()
        for number in homeless:
            try:
                wrong |= {said.position for said in (await self._index.part(number)).said}
            except DAMAGE:
                self._is_damaged = True
        self._indexed.extend(wrong)
        strays = set(await self._index.stray_pages()).difference(homeless)
        for part, number, position, _ in await self._index.block_starts():
            self._starts.setdefault(part, []).append((number, position))
        for row in await self._index.part_rows():
            wrong |= await self._of_part(row)
        wrong |= await self._of_loose()
        wrong.difference_update(ignored)
        indexed = SortedPositions(self._indexed)
        problems: list[Problem] = []
        if strays:
            text = f"the search index contains words of no text; {REMEDY}"
            problems.append(Problem(None, None, text))
        for some in _in_pieces(sorted(wrong)):
            found = {each.position: each for each in await self._log.texts_at(some)}
            problems += [_problem(position, found.get(position)) for position in some]
        async for missing in self._log.missing(self._mark, indexed):
            problems += [_difference(each) for each in missing if each.position not in wrong]
        if self._is_damaged and not problems:
            problems.append(Problem(None, None, f"the search index cannot be read; {REMEDY}"))
        return problems

    async def _of_part(self, row: PartRow) -> set[int]:
        try:
            part = await self._index.part(row.number)
        except DAMAGE:  # its texts are missing
            self._steps.add(row.size)
            self._is_damaged = True
            return set()
        self._steps.add(len(part.said))
        positions = {said.position for said in part.said}
        self._indexed.extend(positions)
        starts = [(each.first, each.position) for each in block_rows(part.said)]
        if starts != self._starts.get(row.number):
            return positions
        found = differing(part, await self._expected(positions))
        return found or (set() if row == part_row(row.number, part) else positions)

    async def _of_loose(self) -> set[int]:
        wrong: set[int] = set()
        after = -(2**62)
        while rows := await self._index.loose_after(after, SOME):
            after = rows[-1].position
            self._indexed.extend(row.position for row in rows)
            log = await self._expected(row.position for row in rows)
            wrong |= {row.position for row in rows if not _is_as_in(log.get(row.position), row)}
        return wrong

    async def _expected(self, positions: Iterable[int]) -> dict[int, Text]:
        """Return the texts in the log at those `positions` that are already indexed."""
        indexed = [position for position in positions if self._mark.has(position)]
        return {each.position: text_of(each) for each in await self._log.texts_at(indexed)}


def _is_as_in(expected: Text | None, row: LooseRow) -> bool:
    try:
        text = row.text
        return is_same(text, expected) and row.length == len(text.words)
    except DAMAGE:
        return False


def _in_pieces(positions: list[int]) -> Iterator[Sequence[int]]:
    return (positions[start : start + SOME] for start in range(0, len(positions), SOME))


def _problem(position: int, found: Found | None) -> Problem:
    if found is not None:
        return _difference(found)
    text = f"the search index contains words of no entry of the log (row {position}); {REMEDY}"
    return Problem(None, None, text)


def _difference(found: Found) -> Problem:
    seq = None if found.entry is None else found.entry.seq
    what = "its title" if found.entry is None else "it"
    text = f"{what} differs from the log in the search index; {REMEDY}"
    return Problem(found.stream, seq, text)
