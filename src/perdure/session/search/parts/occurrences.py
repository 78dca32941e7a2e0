"""How often a word occurs in each text of its posting, and where in its session each text is.

Ranking weighs a text by what its neighbours in the session say: it needs the frequency of a word in
each text, and the order of the texts. Both are numbers beside a posting, one for each of its texts,
in order, as bytes. Of a word only the frequencies above one are written, and most words have none.
Of a session it is how far each text is from the one before it, which takes a byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from perdure.session.search.parts.pages import Kept
from perdure.session.search.parts.postings import bits, numbers

_MORE = 3
"""In the two low bits of a step: how far the frequency is above two, or that it follows."""


def pack_frequencies(repeated: Iterable[tuple[int, int]]) -> bytes:
    """The frequencies above one: of each its place in the posting, ascending, and itself."""
    found = bytearray()
    before = 0
    for place, frequency in repeated:
        above = min(frequency - 2, _MORE)
        _put(found, (place - before) << 2 | above)
        if above == _MORE:
            _put(found, frequency - 2 - _MORE)
        before = place
    return bytes(found)


def pack_places(places: Iterable[int]) -> bytes:
    """Places in a session, in the order of the texts."""
    found = bytearray()
    before = 0
    for place in places:
        step = place - before
        _put(found, step << 1 if step >= 0 else (-step << 1) - 1)
        before = place
    return bytes(found)


def frequencies(word: Kept, size: int) -> dict[int, int]:
    """How often `word` occurs in each text that has it, of a part of `size` texts.

    Raises: IndexError, ValueError where it is damaged.
    """
    texts = numbers(bits(word.posting, size))
    found = dict.fromkeys(texts, 1)
    place = 0
    read = _numbers_in(word.values)
    for step in read:
        place += step >> 2
        above = step & _MORE
        found[texts[place]] = 2 + above + (next(read, 0) if above == _MORE else 0)
    return found


def places(session: Kept, size: int) -> dict[int, int]:
    """Where in `session` each of its texts is, of a part of `size` texts.

    Raises: ValueError where it is damaged.
    """
    texts = numbers(bits(session.posting, size))
    steps = (-(step + 1 >> 1) if step & 1 else step >> 1 for step in _numbers_in(session.values))
    return dict(zip(texts, accumulate(steps), strict=True))


def _put(found: bytearray, number: int) -> None:
    """Seven bits a byte, the lowest first; the highest bit says that more follow."""
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)


def _numbers_in(values: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in values:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("the numbers beside a posting are cut off")
