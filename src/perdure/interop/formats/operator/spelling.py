"""JSON as Operator writes it: compact, keys in order, text raw, numbers in a spelling of its own.

Whole floats keep ``.0``; decimal notation for 1e-5 ≤ |x| < 1e16; other exponents with a sign and
no padding. U+0085, U+2028 and U+2029 are escaped: Operator reads a file by Unicode's idea of a
line, and would take a record with one of them for two broken ones.
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

import msgspec

from perdure.session.codec import encode

_LINE_ENDS = {each: f"\\u{ord(each):04x}".encode() for each in "\x85\u2028\u2029"}


def written(value: object) -> bytes:
    """`value` (plain data) as one line of JSON."""
    line = encode(_spelled(value))
    for character, escape in _LINE_ENDS.items():
        line = line.replace(character.encode(), escape)
    return line


def _spelled(value: object) -> object:
    if isinstance(value, float):
        return msgspec.Raw(spelling(value).encode())
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in cast("list[object]", value)]
    return value


def spelling(number: float) -> str:
    """How Operator writes the finite float `number`."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    minus = "-" if sign else ""
    if number == 0:
        return f"{minus}0.0"
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # where the point stands, counted from the first digit
    return minus + _placed_point(text, point)


def _placed_point(digits: str, point: int) -> str:
    if len(digits) <= point <= 16:
        return f"{digits}{'0' * (point - len(digits))}.0"
    if 0 < point <= 16:
        return f"{digits[:point]}.{digits[point:]}"
    if -5 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
