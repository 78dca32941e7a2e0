"""Operator's session files as a `Codec`.

JSON is written as Operator writes it: compact, keys in order, unescaped text, Operator's spelling
of numbers. U+0085, U+2028 and U+2029 are escaped, because Operator splits lines at all line breaks
of Unicode and would read a record with such a character as two broken records.
"""

from __future__ import annotations

from perdure.codecs import style
from perdure.codecs.fields import seconds_in
from perdure.codecs.operator import bodies, records
from perdure.codecs.operator.words import FORMAT
from perdure.codecs.protocol import Codec
from perdure.codecs.style import LINE_ENDS, Style
from perdure.codecs.times import local_name, time_of

STYLE = Style(smallest=-5, largest=16, whole=".0", zero="0.0", minus_zero="-0.0")
"""Operator's number format: whole floats keep ``.0``; 1e-5 ≤ |x| < 1e16 in decimal notation."""

_ESCAPES = {each.encode(): f"\\u{ord(each):04x}".encode() for each in LINE_ENDS}


def to_line(value: object) -> bytes:
    """Return `value` (plain data) as one line of JSON."""
    line = style.to_line(value, STYLE)
    if not line.isascii():
        for character, escape in _ESCAPES.items():
            line = line.replace(character, escape)
    return line


def _file_name(at: int, session: str) -> str:
    return local_name(at, session, "%Y-%m-%dT%H-%M-%S-%f")


def _time_of(timestamp: float | str | None) -> int | None:
    return time_of(timestamp) if isinstance(timestamp, str) else seconds_in({"at": timestamp}, "at")


OPERATOR = Codec(
    name=FORMAT,
    is_escaped=True,
    has_leaf_record=True,
    oldest_version=0,  # Operator never reads the version
    most_header_bytes=None,
    file_name=_file_name,
    header=records.header,
    records=records.records_of,
    title=records.title,
    custom=records.custom,
    placed=records.place_record,
    line=to_line,
    time_of=_time_of,
    said=bodies.said_by,
)
"""Operator's session files, header version 3."""
