"""pi's session files as a `Codec`.

pi has no record that moves the leaf: it continues from the last record. Side records of perdure
have the leaf as their parent, so that pi finds the right branch if a side record is the last
record. JSON is written as JavaScript writes it, so that pi does not change perdure's lines when it
rewrites a file.
"""

from __future__ import annotations

from perdure.codecs import style
from perdure.codecs.fields import time_in
from perdure.codecs.pi import bodies, records
from perdure.codecs.pi.words import FORMAT, MOST_HEADER_BYTES, VERSION
from perdure.codecs.protocol import Codec
from perdure.codecs.style import Style
from perdure.codecs.times import iso_time

STYLE = Style(smallest=-6, largest=21, whole="", zero="0", minus_zero="0")
"""pi's number format: whole floats without ``.0``; 1e-6 ≤ |x| < 1e21 in decimal notation; no -0."""


def to_line(value: object) -> bytes:
    """Return `value` (plain data, `msgspec.Raw` included) as one line of JSON."""
    return style.to_line(value, STYLE)


def _file_name(at: int, session: str) -> str:
    return iso_time(at).replace(":", "-").replace(".", "-") + f"_{session}.jsonl"


PI = Codec(
    name=FORMAT,
    is_escaped=False,
    has_leaf_record=False,
    oldest_version=VERSION,
    most_header_bytes=MOST_HEADER_BYTES,
    file_name=_file_name,
    header=records.header,
    records=records.records_of,
    title=records.title,
    custom=records.custom,
    placed=records.place_record,
    line=to_line,
    time_of=lambda timestamp: time_in({"at": timestamp}, "at"),
    said=bodies.said_by,
)
"""pi's session files, version 3."""
