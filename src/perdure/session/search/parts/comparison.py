"""Whether an index says what its texts say: a part, or a text that is in none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from perdure.session.search.parts.builder import Part, Text, make_part, texts_in
from perdure.session.search.parts.pages import DAMAGE, PAIR, everything
from perdure.session.search.parts.postings import PLACES, bits, numbers


def differing(part: Part, expected: Mapping[int, Text]) -> set[int]:
    """The positions of texts that `part` holds otherwise than `expected`, or that it should not.

    All of them where it cannot be read.
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
    """Whether `kept` says what is `expected`; keys for filters have no order.

    A text that came out of a part again has them in the order of its pages.
    """
    return (
        expected is not None
        and kept.at == expected.at
        and list(kept.words) == list(expected.words)
        and sorted(kept.filters) == sorted(set(expected.filters))
    )


def _found_wrongly(part: Part, texts: Sequence[Text]) -> set[int]:
    """The positions of texts that stand behind keys they do not have, or not behind their own."""
    again = make_part(texts)
    if again == part:
        return set()
    size = len(part.said)
    ours, theirs = _postings(part, size), _postings(again, size)
    found: set[int] = set()
    for key in {*ours, *theirs}:
        differing = ours.get(key, 0) ^ theirs.get(key, 0)
        step = PLACES if key.startswith(PAIR) else 1
        found.update(part.said[number // step].position for number in numbers(differing))
    return found or {said.position for said in part.said}


def _postings(part: Part, size: int) -> dict[str, int]:
    kept = chain.from_iterable(everything(page.body) for page in part.pages)
    return {
        each.key: bits(each.posting, size * PLACES if each.key.startswith(PAIR) else size)
        for each in kept
    }
