"""Store sets of the texts of an index part, as bytes and as integers.

As an integer, a set has the bit i equal to 1 if it contains the text with the number i. The bytes
of a set have one of three forms. The first form is the integer itself, used if no other form is
shorter. The second form has two bytes for each step from one number to the next, so its length is
even. The third form has one byte for each step from one number to the next. If the length of the
third form would be even, a byte is added, so the length is always odd. In the third form, a byte of
255 means that the step continues in the next byte. Steps repeat more often than numbers, so a page
with steps compresses better.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, compress
from operator import sub
from struct import pack, unpack

_ON = 255
_ONS = bytes((_ON,))

_DENSE = 2 * _ON
"""If the mean step is below this, the form with one byte per step is tried, too."""

_OF_MANY = 5
"""If a set contains more than 1 / `_OF_MANY` of the texts, scanning all texts is faster."""

_TRUTH = bytes.maketrans(b"01", b"\0\1")

MOST_TEXTS = 8_192
"""Maximum texts of a part; limited because an erasure moves all other texts of its part."""


def pack_numbers(numbers: Sequence[int], size: int) -> bytes:
    """Pack `numbers`, which are ascending and below `size`."""
    return pack_steps([*numbers[:1], *map(sub, numbers[1:], numbers)], size)


def pack_steps(steps: Sequence[int], size: int) -> bytes:
    """Pack numbers below `size`, given as the distances `steps` between them, starting from 0."""
    most = (size + 7) // 8
    if len(steps) < most:
        packed = pack(f"<{len(steps)}H", *steps)
        if sum(steps) < len(steps) * _DENSE:
            packed = min(packed, _in_bytes(steps), key=len)
        if len(packed) < most:
            return packed
    return _as_bits(accumulate(steps), most)


def _in_bytes(steps: Sequence[int]) -> bytes:
    packed = b"".join(map(_bytes_of_steps().__getitem__, steps))
    return packed if len(packed) % 2 else packed + _ONS


@cache
def _bytes_of_steps() -> list[bytes]:
    return [_ONS * (step // _ON) + bytes((step % _ON,)) for step in range(MOST_TEXTS)]


def bits(posting: bytes, size: int) -> int:
    """Return a packed posting as an integer."""
    most = (size + 7) // 8
    if len(posting) == most:
        return int.from_bytes(posting, "little")
    return int.from_bytes(_as_bits(_iterate(posting), most), "little")


def listed(posting: bytes, size: int) -> Sequence[int]:
    """Return the numbers in a packed posting; for a damaged posting, the result is arbitrary."""
    if len(posting) == (size + 7) // 8:
        return numbers(int.from_bytes(posting, "little"))
    return _iterate(posting)


def either(postings: Iterable[bytes], size: int) -> int:
    """Return the union of `postings`."""
    most = (size + 7) // 8
    found, listed = 0, set[int]()
    for posting in postings:
        if len(posting) == most:
            found |= int.from_bytes(posting, "little")
        else:
            listed.update(_iterate(posting))
    return found | int.from_bytes(_as_bits(listed, most), "little")


def _iterate(posting: bytes) -> Sequence[int]:
    if len(posting) % 2 == 0:
        return list(accumulate(unpack(f"<{len(posting) // 2}H", posting)))
    if _ON not in posting:
        return list(accumulate(posting))
    steps = zip(posting, accumulate(posting))  # noqa: B905 - they are as many
    return [number for step, number in steps if step != _ON]


def _as_bits(numbers: Iterable[int], size_bytes: int) -> bytes:
    found = bytearray(size_bytes)
    for number in numbers:
        found[number >> 3] |= 1 << (number & 7)
    return bytes(found)


def numbers(found: int) -> list[int]:
    """Return the numbers of the texts in `found`, ascending."""
    listed: list[int] = []
    digits = f"{found:b}"[::-1]
    if found.bit_count() * _OF_MANY > len(digits):
        return list(compress(range(len(digits)), digits.encode().translate(_TRUTH)))
    place = digits.find("1")
    while place >= 0:
        listed.append(place)
        place = digits.find("1", place + 1)
    return listed
