"""In which texts of a part something stands, as bytes and as integers.

As an integer, bit i is the text number i. As bytes it is a list of numbers of two bytes, or where
that is shorter the integer itself, a bit a text. Of a pair of neighbours there are eight bits a
text: at which places, modulo 8, it begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack, unpack

MOST_TEXTS = 8_192
"""Of a part: what numbers of two bytes can name, with eight places a text."""

PLACES = 8

_IS_SET = bytes([0x30, *([0x31] * 255)])
"""For ``bytes.translate``: the digits 0 and 1."""


def packed(numbers: Sequence[int], size: int) -> bytes:
    """`numbers`, ascending and below `size`."""
    most = (size + 7) // 8
    if 2 * len(numbers) < most:
        return pack(f"<{len(numbers)}H", *numbers)
    digits = bytearray(b"0" * size)
    for number in numbers:
        digits[~number] = 0x31
    return int(digits, 2).to_bytes(most, "little")


def bits(posting: bytes, size: int) -> int:
    """What was `packed`, as an integer."""
    if len(posting) == (size + 7) // 8:
        return int.from_bytes(posting, "little")
    found = 0
    for number in unpack(f"<{len(posting) // 2}H", posting):
        found |= 1 << number
    return found


def numbers(found: int) -> list[int]:
    """The texts of which `found` has the bit, ascending."""
    listed: list[int] = []
    digits = f"{found:b}"[::-1]
    place = digits.find("1")
    while place >= 0:
        listed.append(place)
        place = digits.find("1", place + 1)
    return listed


def turned(places: int, by: int, texts: int) -> int:
    """Places of a pair, each `by` words earlier, modulo 8."""
    by %= PLACES
    if not by:
        return places
    low = int.from_bytes(bytes([0xFF >> by]) * texts, "little")
    high = int.from_bytes(bytes([0xFF << (PLACES - by) & 0xFF]) * texts, "little")
    return (places >> by) & low | (places << (PLACES - by)) & high


def texts_at(places: int, texts: int) -> int:
    """The texts in which a pair begins at any of `places`."""
    if not places:
        return 0
    return int(places.to_bytes(texts, "little").translate(_IS_SET)[::-1], 2)
