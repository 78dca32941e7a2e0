"""Parts of an index of search in memory, and looking for texts in them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from perdure.session.search.bm25 import Candidate
from perdure.session.search.matches import counts_in
from perdure.session.search.parts.builder import Part, Text
from perdure.session.search.parts.lookup import Head, Looked, PartLookup, Read, Spoken
from perdure.session.search.parts.pages import SESSION, after
from perdure.session.search.parts.part_query import Asked
from perdure.session.search.query import sought_in

Filters = Sequence[Sequence[str]]


def text(position: int, words: str, *filters: str) -> Text:
    """A text of `words` at a position, from that moment, at that place of a session of its own."""
    own = () if any(key.startswith(SESSION) for key in filters) else (f"{SESSION}own",)
    return Text(position, position, words.split(), (*filters, *own), abs(position))


def found_in(
    parts: Sequence[Part], query: str, filters: Filters = (), most: int = 1_000
) -> tuple[list[Candidate], int]:
    """The newest `most` texts in `parts` that fit, and how many were read for that."""
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
            read += len(wanted)
            finding.read(_spoken(parts, each) for each in wanted)
    return finding.candidates(), read


def fitting(texts: Sequence[Text], query: str, filters: Filters = ()) -> list[Candidate]:
    """What a look at each of `texts` finds, the newest first."""
    sought = sought_in(query)
    fits = [
        Candidate(each.position, counts, len(each.words))
        for each in texts
        if all(not group or set(group) & set(each.filters) for group in filters)
        if (counts := counts_in(each.words, sought)) is not None
    ]
    return sorted(fits, key=lambda each: -each.position)


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


def _spoken(parts: Sequence[Part], read: Read) -> Spoken:
    said = parts[read.part].said[read.number]
    return Spoken(read.part, read.number, said.position, said.length, said.codes, said.at)
