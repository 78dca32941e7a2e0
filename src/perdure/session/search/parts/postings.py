"""Sets of texts of a part, as bytes and as integers.

As an integer, bit i is the text number i. A pair of neighbours has eight bits per text: the
positions, modulo 8, where it begins. The bytes have one of three forms: the integer itself, if no
other is shorter; an even number of bytes: numbers, two bytes each; an odd number: steps from one
number to the next, where 255 only continues a step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import sub
from struct import pack, unpack

MOST_TEXTS = 8_192
"""Maximum texts of a part: limited by two-byte numbers with eight positions per text."""

PLACES = 8

_ON = 255

_IS_SET = bytes([0x30, *([0x31] * 255)])
"""For ``bytes.translate``: the digits 0 and 1."""


def pack_numbers(numbers: Sequence[int], size: int) -> bytes:
    """Pack `numbers`, ascending and below `size`."""
    most = (size + 7) // 8
    is_dense = bool(numbers) and numbers[-1] < len(numbers) * _ON // 2
    listed = _steps(numbers) if is_dense else pack(f"<{len(numbers)}H", *numbers)
    return listed if len(listed) < most else _as_bits(numbers, most)


def bits(posting: bytes, size: int) -> int:
    """Return a packed posting as an integer."""
    most = (size + 7) // 8
    if len(posting) == most:
        return int.from_bytes(posting, "little")
    return int.from_bytes(_as_bits(_iterate(posting), most), "little")


def listed(posting: bytes, size: int) -> Sequence[int]:
    """Return the numbers in a packed posting; of a damaged one, any numbers."""
    if len(posting) == (size + 7) // 8:
        return numbers(int.from_bytes(posting, "little"))
    return _iterate(posting)


def either(postings: Iterable[bytes], size: int) -> int:
    """Return the union of `postings`."""
    most = (size + 7) // 8
    found, listed = 0, bytearray(most)
    for posting in postings:
        if len(posting) == most:
            found |= int.from_bytes(posting, "little")
        else:
            for number in _iterate(posting):
                listed[number >> 3] |= 1 << (number & 7)
    return found | int.from_bytes(listed, "little")


def _iterate(posting: bytes) -> Sequence[int]:
    if len(posting) % 2:
        steps = zip(posting, accumulate(posting))  # noqa: B905 - they are as many
        return [number for step, number in steps if step != _ON]
    return unpack(f"<{len(posting) // 2}H", posting)


def _steps(numbers: Sequence[int]) -> bytes:
    steps = [numbers[0], *map(sub, numbers[1:], numbers)]
    if max(steps) < _ON:
        found = bytes(steps)
    else:
        parts = [bytes([_ON] * (step // _ON) + [step % _ON]) for step in steps]
        found = b"".join(parts)
    return found if len(found) % 2 else found + bytes([_ON])


def _as_bits(numbers: Iterable[int], size_bytes: int) -> bytes:
    found = bytearray(size_bytes)
    for number in numbers:
        found[number >> 3] |= 1 << (number & 7)
    return bytes(found)


def numbers(found: int) -> list[int]:
    """Return the numbers of the texts in `found`, ascending."""
    listed: list[int] = []
    digits = f"{found:b}"[::-1]
    place = digits.find("1")
    while place >= 0:
        listed.append(place)
        place = digits.find("1", place + 1)
    return listed


def rotate(places: int, by: int, texts: int) -> int:
    """Return the positions of a pair shifted `by` words back, modulo 8."""
    by %= PLACES
    if not by:
        return places
    low = int.from_bytes(bytes([0xFF >> by]) * texts, "little")
    high = int.from_bytes(bytes([0xFF << (PLACES - by) & 0xFF]) * texts, "little")
    return (places >> by) & low | (places << (PLACES - by)) & high


def texts_at(places: int, texts: int) -> int:
    """Return the texts in which a pair begins at any of `places`."""
    if not places:
        return 0
    return int(places.to_bytes(texts, "little").translate(_IS_SET)[::-1], 2)
