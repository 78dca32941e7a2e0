"""Update an index from the log in steps. Each step is read, built and stored in one commit.

The index mark, the end of the indexed log, moves in the transaction that stores the texts. So the
index stays consistent if a process is killed or if two processes index at the same time. A step is
stored only if the index mark, the end of the indexed log, is still where the step began. A few new
texts are indexed one by one. Some hundred texts together become one part of the index
(``session.search.parts``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from perdure.errors import SearchIndexDamaged
from perdure.session.search.parts import sizes
from perdure.session.search.parts.builder import Part, Text, make_part, texts_in
from perdure.session.search.parts.codes import MOST_WORDS
from perdure.session.search.parts.lookup import Read
from perdure.session.search.parts.pages import DAMAGE
from perdure.session.search.phrase_text import join_terms
from perdure.session.search.words import VERSION
from perdure.stores.search.index_keys import text_of
from perdure.stores.search.rows import (
    NO_END,
    IndexedLog,
    IndexReader,
    IndexWriter,
    LooseRow,
    Mark,
    NextTexts,
    Progress,
    SteppedLog,
    loose_row,
)


class Step(NamedTuple):
    """One change of the index, which moves the index mark from `before` to `after`.

    `texts` are new texts. If `is_of_loose` is True, `texts` are indexed texts that are not yet in a
    part of the index. `part` is the index part built from the texts, or None if there are too few
    texts. `is_last` means that no work remains after this step.
    """

    before: Mark
    after: Mark
    texts: list[Text]
    is_of_loose: bool = False
    is_last: bool = False
    part: Part | None = None


async def next_step(index: IndexReader, log: SteppedLog, upto: Progress) -> Step:
    """Return the next step, which indexes the texts after the index mark.

    If the index mark is at `upto`, the step builds an index part from texts that are not yet in
    one.
    Raises: SearchIndexDamaged.
    """
    stored = await index.mark()
    before = stored.usable
    is_there = before.entry >= upto.entry and before.stream >= upto.stream
    if is_there and stored.version == VERSION:
        try:
            return await step_of_loose(index, log, before)
        except DAMAGE as error:
            raise SearchIndexDamaged(log.address) from error
    texts = await log.next_texts(before)
    return await log.compute(lambda: _step_of(before, texts))


def _step_of(before: Mark, texts: NextTexts) -> Step:
    """Return a step with as many of `texts` as fit into one part of the index."""
    taken: list[Text] = []
    words, after = 0, before
    for found, mark in texts.found:
        text = text_of(found)
        words += len(text.words)
        if taken and (words > MOST_WORDS or len(taken) == sizes.BATCH_ROWS):
            return Step(before, after, taken)
        taken.append(text)
        after = mark
    return Step(before, texts.end, taken)


async def step_of_loose(index: IndexReader, log: IndexedLog, before: Mark) -> Step:
    """Return a step that builds an index part from texts that are not yet in one.

    The step is empty if too few texts are outside of index parts.
    """
    rows = [row for row in await index.loose((-NO_END, NO_END)) if row.length <= MOST_WORDS]
    words = sum(row.length for row in rows)
    found: list[LooseRow] = []
    if sizes.is_enough(len(rows), min(words, MOST_WORDS)):
        size = 0
        for row in sorted(rows)[: sizes.BATCH_ROWS]:
            size += row.length
            if size > MOST_WORDS:
                break
            found.append(row)
    texts = await log.compute(lambda: [row.text for row in found])
    is_last = len(found) == len(rows) or not found
    return Step(before, before, texts, is_of_loose=True, is_last=is_last)


def with_part(step: Step) -> Step:
    """Return `step` with an index part built from its texts, if it has enough texts.

    Building an index part takes some tenths of a second.
    """
    words = sum(len(text.words) for text in step.texts)
    is_part = bool(step.texts) and (step.is_of_loose or sizes.is_enough(len(step.texts), words))
    if not is_part:
        return step
    return step._replace(part=make_part(step.texts))


async def put_in(index: IndexWriter, step: Step) -> bool:
    """Store `step`. Return whether `step` was the last one."""
    stored = await index.reader.mark()
    if stored.usable != step.before:  # another process was first: read the next step again
        return False
    if stored.version != VERSION:
        await index.clear()
    if step.is_of_loose:
        await index.remove_loose([text.position for text in step.texts])
    if step.part is not None:
        await index.add_part(step.part)
    else:
        await index.add_loose(_rows_of(step.texts))
    await index.set_mark(step.after._replace(parts=step.after.parts + (step.part is not None)))
    return step.is_last


async def clear(index: IndexWriter) -> None:
    """Empty the index, even a damaged one. The next search rebuilds an index that was emptied."""
    stored = await index.reader.mark()
    await index.clear()
    await index.set_mark(Mark(VERSION, forgotten=stored.forgotten + 1))


async def forget(index: IndexWriter, positions: Sequence[int]) -> int:
    """Remove the texts at `positions` and all bytes of their words.

    Return the number of removed texts.

    The other texts of the affected index parts are stored one by one again, outside of any part. If
    the index is damaged or of another version, the index is emptied, and the next search rebuilds
    it. The returned number does not include unreadable texts of a damaged index.
    """
    stored = await index.reader.mark()
    parts = Counter({0: await index.reader.loose_at(positions)})
    gone = frozenset(positions)
    try:
        await _count_in_parts(index.reader, gone, parts)
        if stored.version != VERSION:
            await clear(index)
            return sum(parts.values())
        for number in sorted((+parts).keys() - {0}):
            texts = list(texts_in(await index.reader.part(number)))
            left = [each for each in texts if each.position not in gone]
            if await index.reader.loose_at([each.position for each in left]):
                raise ValueError("a text is in two places")
            await index.remove_part(number)
            await index.add_loose(_rows_of(left))
    except DAMAGE:
        await clear(index)
        return sum(parts.values())
    await index.remove_loose(positions)
    if positions:
        await index.set_mark(stored._replace(forgotten=stored.forgotten + 1))
    return sum(parts.values())


async def _count_in_parts(index: IndexReader, gone: frozenset[int], counts: Counter[int]) -> None:
    """Add to `counts`, for each index part, how many of its texts are at the positions `gone`.

    Raises: one of the exceptions in ``pages.DAMAGE`` if the index is damaged.
    """
    if not gone:
        return
    firsts: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    starts: dict[tuple[int, int], int] = {}
    for part, number, position, last in await index.block_starts(min(gone), max(gone)):
        numbers, begins = firsts.setdefault((part, last), ([], []))
        numbers.append(number)
        begins.append(position)
        starts[part, number] = position
    wanted: list[Read] = []
    for (part, last), (numbers, begins) in firsts.items():
        own = [position for position in gone if begins[0] <= position <= last]
        places = sorted({bisect_right(begins, position) - 1 for position in own})
        if places:
            wanted.append(Read(part, [numbers[place] for place in places]))
    for block in await index.blocks(wanted):
        positions = [said.position for said in block.said()]
        if positions[0] != starts[block.part, block.first]:
            raise ValueError("a block begins elsewhere than its row says")
        counts[block.part] += sum(position in gone for position in positions)


def _rows_of(texts: Sequence[Text]) -> list[LooseRow]:
    return [loose_row(text, join_terms(text.words)) for text in texts]
