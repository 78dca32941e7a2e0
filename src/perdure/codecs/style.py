"""Write JSON with another program's number format.

If the program rewrites a file of perdure, the numbers stay the same. Except for numbers, msgspec
writes the same JSON as all supported programs. A `Style` describes how a format spells numbers;
this module does not depend on any format.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

import msgspec

from perdure.codecs.lines import LEVELS, containers_in, is_too_deep
from perdure.session.codec import encode

LINE_ENDS = ("\x85", "\u2028", "\u2029")
"""Characters besides LF that end a line for readers that follow Unicode."""


class Style(msgspec.Struct, frozen=True):
    """How floats are written.

    Shape: a number with 10^`smallest` ≤ |x| < 10^`largest` is written in decimal notation. Larger
    and smaller numbers get an exponent with a sign and without leading zeros. Whole numbers end in
    `whole`, for example ``.0``. `zero` and `minus_zero` are the texts of 0.0 and -0.0.
    """

    smallest: int
    largest: int
    whole: str
    zero: str
    minus_zero: str


def to_line(value: object, style: Style) -> bytes:
    """Return `value` (plain data, `msgspec.Raw` included) as one line of JSON.

    Shape: numbers are written in `style`. If a value is nested deeper than Python's recursion limit
    allows, all numbers are written in the style of msgspec.
    """
    try:
        value = _to_plain(value, style)
    except RecursionError:
        return encode(value)
    return encode(value)


def shallow(line: bytes) -> dict[str, object] | None:
    """Return the JSON object `line`, with values nested deeper than `LEVELS` as text.

    Shape: the result is None if no value is nested deeper than `LEVELS`, so that the line can stay
    unchanged.
    """
    if line.count(b"[") + line.count(b"{") <= LEVELS:
        return None
    value = msgspec.json.decode(line, type=dict[str, object])
    if not is_too_deep(line, value):
        return None
    layer: list[object] = [value]
    for _ in range(LEVELS - 1):
        layer = [each for holder in layer for _, each in containers_in(holder)]
    for holder in layer:
        for key, each in list(containers_in(holder)):
            cast("Any", holder)[key] = encode(each).decode()
    return value


def _to_plain(value: object, style: Style) -> object:
    if isinstance(value, float):
        return msgspec.Raw(spelling(value, style).encode())
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {key: _to_plain(item, style) for key, item in fields.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item, style) for item in cast("list[object]", value)]
    return value


def spelling(number: float, style: Style) -> str:
    """Return the finite `number` as text in `style`."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    if number == 0:
        return style.minus_zero if sign else style.zero
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)  # position of the decimal point, from the first digit
    return ("-" if sign else "") + _placed_point(text, point, style)


def _placed_point(digits: str, point: int, style: Style) -> str:
    if len(digits) <= point <= style.largest:
        return f"{digits}{'0' * (point - len(digits))}{style.whole}"
    if 0 < point <= style.largest:
        return f"{digits[:point]}.{digits[point:]}"
    if style.smallest < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
