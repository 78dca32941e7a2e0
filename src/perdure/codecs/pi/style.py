"""JSON as JavaScript writes it, so that pi's rewriting of a file keeps perdure's lines."""

from __future__ import annotations

from perdure.codecs import style
from perdure.codecs.style import Style

STYLE = Style(smallest=-6, largest=21, whole="", zero="0", minus_zero="0")
"""Decimal notation for 1e-6 ≤ |x| < 1e21, whole floats without ``.0``, and 0 for -0."""


def to_line(value: object) -> bytes:
    """Return `value` (plain data, `msgspec.Raw` included) as one line of JSON."""
    return style.to_line(value, STYLE)
