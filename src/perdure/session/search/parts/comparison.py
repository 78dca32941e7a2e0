"""Compare the texts in an index with the expected texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perdure.session.search.parts.blocks import Said
from perdure.session.search.parts.builder import Part, Text, make_part, texts_in
from perdure.session.search.parts.occurrences import frequencies, places
from perdure.session.search.parts.pages import DAMAGE, SESSION, Kept, everything


def differing(part: Part, expected: Mapping[int, Text]) -> set[int]:
    """Return the positions of texts in `part` that differ from `expected` or should not be there.

    All positions are returned if the part is unreadable.
    """
    positions = {said.position for said in part.said}
    try:
        kept = list(texts_in(part))
        found = {text.position for text in kept if not is_same(text, expected.get(text.position))}
        found |= {
            said.position
            for said, text in zip(part.said, kept, strict=True)
            if said.length != len(text.words)
        }
        return found or _found_wrongly(part, kept)
    except DAMAGE:
        return positions


def is_same(kept: Text, expected: Text | None) -> bool:
    """Return True if `kept` equals `expected`; the order of filter keys is ignored.

    A text restored from an index part has its filter keys in the order of the part's pages.
    """
    return (
        expected is not None
        and (kept.at, kept.place) == (expected.at, expected.place)
        and list(kept.words) == list(expected.words)
        and sorted(kept.filters) == sorted(set(expected.filters))
    )


def _found_wrongly(part: Part, texts: Sequence[Text]) -> set[int]:
    """Return the positions of those texts whose index keys do not match the content of the text."""
    again = make_part(texts)
    if _content(again) == _content(part):
        return set()
    size = len(part.said)
    ours, theirs = _kept(part), _kept(again)
    found: set[int] = set()
    for key in {*ours, *theirs}:
        one, other = ours.get(key), theirs.get(key)
        if one != other:
            found |= {part.said[number].position for number in _texts_differing(one, other, size)}
    return found or {said.position for said in part.said}


def _content(part: Part) -> tuple[Sequence[Said], Sequence[tuple[str, Sequence[Kept]]]]:
    """Return the decompressed content of `part`.

    Compressed content cannot be compared, because it depends on the version of zlib.
    """
    return part.said, [(page.first, everything(page.body)) for page in part.pages]


def _kept(part: Part) -> dict[str, Kept]:
    return {each.key: each for page in part.pages for each in everything(page.body)}


def _texts_differing(one: Kept | None, other: Kept | None, size: int) -> set[int]:
    """Return the numbers of the texts for which `one` and `other` contain different data."""
    return {number for number, _ in _occurrences(one, size) ^ _occurrences(other, size)}


def _occurrences(kept: Kept | None, size: int) -> set[tuple[int, int]]:
    if kept is None:
        return set()
    if kept.key.startswith(SESSION):
        return set(places(kept, size).items())
    return set(zip(*frequencies(kept, size), strict=True))
