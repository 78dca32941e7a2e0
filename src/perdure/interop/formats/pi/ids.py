"""The ids that perdure's own entries get in a pi file: always the same for the same entry."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from perdure.session.entries import Entry
from perdure.session.ids import EntryId

_DIGITS = 8  # as pi's own
_TOOL_RESULT = b'"tool_result"'  # each result of a message becomes a record


def written_id(entry: EntryId, ordinal: int = 0, attempt: int = 0) -> str:
    """The id of the record `ordinal` made of `entry`; other `attempt`s give others."""
    name = f"{entry} {ordinal} {attempt}"
    return hashlib.sha256(name.encode()).hexdigest()[:_DIGITS]


def written_ids(entries: Iterable[Entry]) -> dict[str, EntryId]:
    """Id in a pi file -> entry, for finding one's own entries again in a file that was exported."""
    return {
        written_id(entry.id, ordinal): entry.id
        for entry in entries
        for ordinal in range(max(1, entry.body.count(_TOOL_RESULT)))
    }
