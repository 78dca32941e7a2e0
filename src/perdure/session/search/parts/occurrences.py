"""Pack the frequencies of a word in texts, and the positions of texts in a session.

Ranking weighs a text by its neighbours in the session: it needs the frequency of a word in each
text, and the order of the texts. Frequencies and positions are stored as bytes next to a posting
(the set of texts that have a key). The frequencies and positions are in the order of the texts in
the posting. For a word, only frequencies above one are stored; most words occur at most once in
every text. For a session, the position of a text is stored as the distance from the position of the
previous text, which mostly fits in one byte.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import sub

from perdure.session.search.parts.pages import Kept
from perdure.session.search.parts.postings import listed

_LAST = 0x7F
"""Greatest value of a number's last byte; all earlier bytes of the number are greater."""

_MORE = 3
"""Mask of a step's two low bits, which contain the frequency minus two, or 3.

3 means that the frequency is 5 or more; the frequency minus 5 follows as the next number.
"""


def pack_frequencies(repeated: Iterable[tuple[int, int]]) -> bytes:
    """Pack the frequencies above one, each with its index in the posting (ascending)."""
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
    """Pack `places`, the positions of texts in their session, in the order of the texts."""
    steps = [*places[:1], *map(sub, places[1:], places)]
    signed = [step << 1 if step >= 0 else (-step << 1) - 1 for step in steps]
    if max(signed, default=0) <= _LAST:
        return bytes(signed)
    found = bytearray()
    for each in signed:
        _put(found, each)
    return bytes(found)


def frequencies(word: Kept, size: int) -> tuple[Sequence[int], list[int]]:
    """Return the texts that contain `word`, and its frequency in each text.

    The index part has `size` texts.
    Raises: IndexError or ValueError if `word` is damaged.
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
    """Return the position in `session` of each of its texts. The index part has `size` texts.

    Raises: ValueError if `session` is damaged.
    """
    texts = listed(session.posting, size)
    steps = (-(step + 1 >> 1) if step & 1 else step >> 1 for step in _numbers_in(session.values))
    return dict(zip(texts, accumulate(steps), strict=True))


def _put(found: bytearray, number: int) -> None:
    """Append `number` as a varint.

    Each byte has seven bits, the lowest first; the high bit means that another byte follows.
    """
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
