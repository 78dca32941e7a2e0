"""pi's session files, version 3: ISO times, ``parentId``, one message for each tool result.

pi has no record for a move of the leaf: it goes on from whatever record is last. So what we append
beside the conversation hangs on the leaf, and pi finds the way back from there.
"""

from __future__ import annotations

from perdure.codecs.fields import Fields
from perdure.codecs.pi import words as pi
from perdure.codecs.times import iso_time, time_of
from perdure.session.codec import Body
from perdure.session.entries import Entry
from perdure.stores.jsonl.dialects import pi_reading, pi_records
from perdure.stores.jsonl.dialects.form import Said, Writing


class Pi:
    """pi's session files, version 3."""

    name = "pi"
    is_escaped = False
    has_leaf_record = False
    oldest_version = pi.VERSION

    def file_name(self, at: int, session: str) -> str:
        return iso_time(at).replace(":", "-").replace(".", "-") + f"_{session}.jsonl"

    def header(self, session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
        return pi.header(session, at, cwd, parent)

    def records(self, entry: Entry, body: Body, writing: Writing) -> list[Fields]:
        return pi_records.records_of(entry, body, writing)

    def custom(self, custom_type: str, data: Fields) -> Fields:
        return pi.custom(custom_type, data)

    def placed(self, record: Fields, id: str, parent: str | None, at: int) -> Fields:
        return pi.placed(record, id, parent, at)

    def time_of(self, timestamp: float | str | None) -> int | None:
        if isinstance(timestamp, str):
            return time_of(timestamp)
        is_time = timestamp is not None and abs(timestamp) < 2**53
        return round(timestamp) if timestamp is not None and is_time else None

    def said(self, fields: Fields) -> Said:
        return pi_reading.said_by(fields)
