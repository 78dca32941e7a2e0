"""Operator's session files as a `Codec`."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.codecs.fields import Fields
from perdure.codecs.form import Said, Writing
from perdure.codecs.media import Media
from perdure.codecs.operator import reading, records
from perdure.codecs.operator.spelling import written
from perdure.codecs.operator.words import FORMAT
from perdure.codecs.times import local_name, time_of
from perdure.session.codec import Body
from perdure.session.entries import Entry


class Operator:
    """Operator's session files, header version 3."""

    name = FORMAT
    is_escaped = True
    has_leaf_record = True
    oldest_version = 0  # Operator never looks at the version
    most_header_bytes = None

    def file_name(self, at: int, session: str) -> str:
        return local_name(at, session, "%Y-%m-%dT%H-%M-%S-%f")

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
        is_time = timestamp is not None and abs(timestamp) < 2**43
        return round(timestamp * 1000) if timestamp is not None and is_time else None

    def said(self, fields: Fields, media: Media) -> Said:
        return reading.said_by(fields, media)
