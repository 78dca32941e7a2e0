"""pi's session files as a `Codec`.

pi has no record for a move of the leaf: it goes on from whatever record is last. So what we append
beside the conversation hangs on the leaf, and pi finds the way back from there.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.codecs.fields import Fields
from perdure.codecs.form import Said, Writing
from perdure.codecs.media import Media
from perdure.codecs.pi import reading, records
from perdure.codecs.pi.spelling import written
from perdure.codecs.pi.words import FORMAT, MOST_HEADER_BYTES, VERSION
from perdure.codecs.times import iso_time, time_of
from perdure.session.codec import Body
from perdure.session.entries import Entry


class Pi:
    """pi's session files, version 3."""

    name = FORMAT
    is_escaped = False
    has_leaf_record = False
    oldest_version = VERSION
    most_header_bytes = MOST_HEADER_BYTES

    def file_name(self, at: int, session: str) -> str:
        return iso_time(at).replace(":", "-").replace(".", "-") + f"_{session}.jsonl"

    def header(self, session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
        return records.header(session, at, cwd, parent)

    def records(self, entry: Entry, body: Body, writing: Writing) -> list[Fields]:
        return records.records_of(entry, body, writing)

    def title(self, title: str) -> Fields:
        return records.title(title)

    def custom(self, custom_type: str, data: object) -> Fields:
        return records.custom(custom_type, data)

    def placed(self, record: Mapping[str, object], id: str, parent: str | None, at: int) -> Fields:
        return records.placed(record, id, parent, at)

    def line(self, fields: Fields) -> bytes:
        return written(fields)

    def time_of(self, timestamp: float | str | None) -> int | None:
        if isinstance(timestamp, str):
            return time_of(timestamp)
        is_time = timestamp is not None and abs(timestamp) < 2**53
        return round(timestamp) if timestamp is not None and is_time else None

    def said(self, fields: Fields, media: Media) -> Said:
        return reading.said_by(fields, media)
