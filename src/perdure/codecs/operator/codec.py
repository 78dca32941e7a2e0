"""Operator's session files as a `Codec`."""

from __future__ import annotations

from perdure.codecs.fields import seconds_in
from perdure.codecs.operator import bodies, records
from perdure.codecs.operator.style import to_line
from perdure.codecs.operator.words import FORMAT
from perdure.codecs.protocol import Codec
from perdure.codecs.times import local_name, time_of


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
