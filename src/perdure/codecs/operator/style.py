"""JSON as Operator writes it: compact, keys in order, raw text, its own spelling of numbers.

U+0085, U+2028 and U+2029 are escaped: Operator splits lines by Unicode's rules, and would read a
record with one of them as two broken ones.
"""

from __future__ import annotations

from perdure.codecs import style
from perdure.codecs.style import LINE_ENDS, Style

STYLE = Style(smallest=-5, largest=16, whole=".0", zero="0.0", minus_zero="-0.0")
"""Whole floats keep ``.0``; decimal notation for 1e-5 ≤ |x| < 1e16."""

_ESCAPES = {each.encode(): f"\\u{ord(each):04x}".encode() for each in LINE_ENDS}


def to_line(value: object) -> bytes:
    """Return `value` (plain data) as one line of JSON."""
    line = style.to_line(value, STYLE)
    if not line.isascii():
        for character, escape in _ESCAPES.items():
            line = line.replace(character, escape)
    return line
