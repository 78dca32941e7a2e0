"""JSON as JavaScript writes it, so that pi's own rewriting of a file leaves our lines as they are.

Only numbers differ from what msgspec writes: decimal notation for 1e-6 ≤ |x| < 1e21, exponents
with a sign and no padding, whole floats without ``.0``, and 0 for -0.
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

import msgspec

from perdure.session.codec import encode


def written(value: object) -> bytes:
    """`value` (plain data, `msgspec.Raw` included) as one line of JSON.

    Shape: what is nested too deeply for Python to walk keeps msgspec's spelling of numbers.
    """
    try:
        value = _spelled(value)
    except RecursionError:
        return encode(value)
    return encode(value)


def _spelled(value: object) -> object:
    if isinstance(value, float):
        return msgspec.Raw(spelling(value).encode())
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in cast("dict[str, object]", value).items()}
    if isinstance(value, list | tuple):
        return [_spelled(item) for item in cast("list[object]", value)]
    return value


def spelling(number: float) -> str:
    """How JavaScript writes the finite `number`."""
    if number == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(
        exponent
    )  # where the decimal point stands, counted from the first digit
    return ("-" if sign else "") + _placed_point(text, point)


def _placed_point(digits: str, point: int) -> str:
    if len(digits) <= point <= 21:
        return digits + "0" * (point - len(digits))
    if 0 < point <= 21:
        return f"{digits[:point]}.{digits[point:]}"
    if -6 < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
