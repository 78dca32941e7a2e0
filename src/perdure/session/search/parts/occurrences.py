"""Pack a word's frequency in each text of its posting, and each text's position in its session.

Ranking weighs a text by its neighbours in the session: it needs the frequency of a word in each
text, and the order of the texts. Both are stored as bytes next to a posting, with one number for
each text of the posting, in order. For a word, only frequencies above one are stored; most words
occur at most once in every text. For a session, the numbers are the distances of each text from the
previous one; each takes one byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import sub

from perdure.session.search.parts.pages import Kept
from perdure.session.search.parts.postings import listed

_LAST = 0x7F
"""The greatest byte that ends a number."""

_MORE = 3
"""Mask of a step's two low bits: the frequency minus two, or 3 if it follows."""


def pack_frequencies(repeated: Iterable[tuple[int, int]]) -> bytes:
    """Pack the frequencies above one: pairs of index in the posting (ascending) and frequency."""
    found = bytearray()
    before = 0
    for place, frequency in repeated:
        step = (place - before) << 2
        if frequency - 2 < _MORE and step < _LAST:
            found.append(step | frequency - 2)
        else:
            above = min(frequency - 2, _MORE)
            _put(found, step | above)
            if above == _MORE:
                _put(found, frequency - 2 - _MORE)
        before = place
    return bytes(found)


def pack_places(places: Sequence[int]) -> bytes:
    """Pack positions in a session, in the order of the texts."""
    steps = [*places[:1], *map(sub, places[1:], places)]
    signed = [step << 1 if step >= 0 else (-step << 1) - 1 for step in steps]
    if max(signed, default=0) <= _LAST:
        return bytes(signed)
    found = bytearray()
    for each in signed:
        _put(found, each)
    return bytes(found)


def frequencies(word: Kept, size: int) -> tuple[Sequence[int], list[int]]:
    """Return the texts of `word` in a part of `size` texts, and the word's frequency in each text.

    Raises: IndexError, ValueError if it is damaged.
    """
    texts = listed(word.posting, size)
    found = [1] * len(texts)
    place = 0
    read = _numbers_in(word.values)
    for step in read:
        place += step >> 2
        above = step & _MORE
        found[place] = 2 + above + (next(read, 0) if above == _MORE else 0)
    return texts, found


def places(session: Kept, size: int) -> dict[int, int]:
    """Return the position in `session` of each of its texts, in a part of `size` texts.

    Raises: ValueError if it is damaged.
    """
    texts = listed(session.posting, size)
    steps = (-(step + 1 >> 1) if step & 1 else step >> 1 for step in _numbers_in(session.values))
    return dict(zip(texts, accumulate(steps), strict=True))


def _put(found: bytearray, number: int) -> None:
    """Append `number` as a varint: seven bits a byte, low first; the high bit means more follow."""
    while number > _LAST:
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
