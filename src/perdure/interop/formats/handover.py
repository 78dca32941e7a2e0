"""The mark that perdure writes into a file for another program: it names the session and entry.

An import uses the mark to detect that the first lines of a file are copies of a session. The id of
the session in the other program is derived from the mark. Therefore a mark is invalid in a file
whose session id is not derived from this mark.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import NAMESPACE_URL, UUID, uuid5

import msgspec

from perdure.codecs.fields import Fields, count_in, name_in, object_in
from perdure.session.ids import EntryId, StreamId

KEY = "perdure"
"""Key of the mark in a record of the other program."""


class Handover(msgspec.Struct, frozen=True):
    """States that a file continues `session` from `entry`.

    The first `lines` lines of the file are copies of the session.
    """

    session: str
    entry: str
    lines: int

    @property
    def id(self) -> UUID:
        """The id of the conversation in the other program."""
        return conversation_id(self.session, self.entry)

    @property
    def mark(self) -> Mapping[str, object]:
        """The handover mark as a field of a record."""
        return {KEY: msgspec.structs.asdict(self)}


def conversation_id(session: StreamId | str, entry: EntryId | str | None) -> UUID:
    """Return the id that other programs get for the conversation of `session` up to `entry`."""
    return uuid5(NAMESPACE_URL, f"perdure:{session}:{entry}")


def handover_in(fields: Fields) -> Handover | None:
    """Return the mark in a record; None if the record has no mark."""
    mark = object_in(fields, KEY) if KEY in fields else None
    if mark is None:
        return None
    session, entry = name_in(mark, "session"), name_in(mark, "entry")
    if session is None or entry is None:
        return None
    return Handover(session, entry, count_in(mark, "lines"))
