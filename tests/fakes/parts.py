"""Parts of a search index in memory, and a lookup of texts in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from perdure.session.search.bm25 import Candidate
from perdure.session.search.matches import counts_in
from perdure.session.search.parts import sizes
from perdure.session.search.parts.blocks import Block, BlockRow, Said, block_rows
from perdure.session.search.parts.builder import Part, Text
from perdure.session.search.parts.lookup import Head, Looked, PartLookup, Read
from perdure.session.search.parts.pages import SESSION, after, everything
from perdure.session.search.parts.part_query import Asked
from perdure.session.search.parts.postings import MOST_TEXTS
from perdure.session.search.query import sought_in

Filters = Sequence[Sequence[str]]


def text(position: int, words: str, *filters: str) -> Text:
    """Return a text of `words` at a position; time and place equal the position."""
    own = () if any(key.startswith(SESSION) for key in filters) else (f"{SESSION}own",)
    return Text(position, position, words.split(), (*filters, *own), abs(position))


def found_in(
    parts: Sequence[Part], query: str, filters: Filters = (), most: int = 1_000
) -> tuple[list[Candidate], int]:
    """Return the newest `most` matching texts in `parts`, and the number of texts read."""
    heads = [Head(no, len(part.said), part.said[-1].position) for no, part in enumerate(parts)]
    finding = PartLookup(Asked(sought_in(query), filters), heads, [], most)
    read = 0
    while step := finding.step():
        looked = [each for each in step if isinstance(each, Head)]
        wanted = [each for each in step if isinstance(each, Read)]
        if looked:
            exact = [page for head in looked for page in _exact(parts, head.part, finding.asked)]
            begun = [page for head in looked for page in _begun(parts, head.part, finding.asked)]
            finding.look_up(looked, exact, begun)
        else:
            blocks = [block for each in wanted for block in _blocks(parts, each)]
            read += sum(block.behind - block.first for block in blocks)
            finding.read(blocks, -(2**62), 2**62)
    return finding.candidates(), read


def fitting(texts: Sequence[Text], query: str, filters: Filters = ()) -> list[Candidate]:
    """Return the matches of a scan through all `texts`."""
    sought = sought_in(query)
    fits = [
        Candidate(each.position, counts, len(each.words))
        for each in texts
        if all(not group or set(group) & set(each.filters) for group in filters)
        if (counts := counts_in(each.words, sought)) is not None
    ]
    return sorted(fits, key=lambda each: -each.position)


def words_of(pages: Iterable[bytes]) -> set[str]:
    """Return the keys of compressed pages, because a search of the bytes would not find them."""
    return {kept.key for body in pages for kept in everything(body)}


def make_parts_of_few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make an index build parts with compressed pages even for a few texts."""
    for name, size in (("SCANNED", 0), ("MOST_LOOSE", 1), ("BATCH_ROWS", 64)):
        monkeypatch.setattr(sizes, name, size)


def rewritten(blocks: Iterable[Block], change: Callable[[list[Said]], object]) -> list[BlockRow]:
    """Return the blocks of a part after `change` was applied to its texts."""
    said = [each for block in blocks for each in block.said()]
    change(said)
    return list(block_rows(said))


def rewrite_texts(db: Any, change: Callable[[list[Said]], object]) -> None:
    """Change the texts of the only part of an SQLite file."""
    rows = db.execute("SELECT id, said FROM search_text ORDER BY id").fetchall()
    blocks = [Block(id_ // MOST_TEXTS, id_ % MOST_TEXTS, body) for id_, body in rows]
    db.execute("DELETE FROM search_text")
    for row in rewritten(blocks, change):
        id_ = blocks[0].part * MOST_TEXTS + row.first
        db.execute("INSERT INTO search_text VALUES (?, ?, ?, ?, ?)", (id_, *row[1:]))


def without_text(number: int) -> Callable[[list[Said]], object]:
    """A change that removes a text of a part."""
    return lambda said: said.pop(number)


def with_text(number: int, **fields: object) -> Callable[[list[Said]], object]:
    """Return a change that replaces fields of the text `number` of a part."""

    def change(said: list[Said]) -> None:
        said[number] = said[number]._replace(**fields)

    return change


def _exact(parts: Sequence[Part], number: int, asked: Asked) -> Iterator[Looked]:
    pages = parts[number].pages
    firsts = [page.first for page in pages]
    for key in asked.keys:
        place = bisect_right(firsts, key)
        if place:
            yield Looked(number, key, pages[place - 1].body)


def _begun(parts: Sequence[Part], number: int, asked: Asked) -> Iterator[Looked]:
    pages = parts[number].pages
    firsts = [page.first for page in pages]
    for prefix in asked.prefixes:
        place = max(bisect_right(firsts, prefix) - 1, 0)
        while place < len(pages) and pages[place].first < after(prefix):
            yield Looked(number, prefix, pages[place].body)
            place += 1


def _blocks(parts: Sequence[Part], read: Read) -> Iterator[Block]:
    for row in block_rows(parts[read.part].said):
        if any(row.first <= number < row.first + row.texts for number in read.numbers):
            yield Block(read.part, row.first, row.body)
