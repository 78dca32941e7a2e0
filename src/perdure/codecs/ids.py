"""Compute the ids of perdure's entries in other programs' files.

Every export of an entry gives the same ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from perdure.session.entries import Entry
from perdure.session.ids import EntryId

_DIGITS = 16
"""Ids are twice as long as the programs' own ids, to avoid collisions in files of any size."""

HEADER_TITLE = -2
"""Used as the seq of the title in a session's header, because the title is not an entry."""

_TOOL_RESULT = b'"tool_result"'  # each result of a message becomes a record of pi


def record_digest(entry: str, ordinal: int = 0, attempt: int = 0) -> bytes:
    """Return a digest for record number `ordinal` of `entry`; each `attempt` gives another one."""
    return hashlib.sha256(f"{entry} {ordinal} {attempt}".encode()).digest()


def written_id(entry: EntryId, ordinal: int = 0, attempt: int = 0) -> str:
    """Return an id for record number `ordinal` of `entry`; each `attempt` gives another id."""
    return record_digest(entry, ordinal, attempt).hex()[:_DIGITS]


def record_id(index: int) -> str:
    """Return the placeholder id of the record at `index`; the header has index 0."""
    return f"#{index}"


def message_id(entry: str, ordinal: int = 0) -> str:
    """Return the UUID (version 4) of the message in record number `ordinal` of `entry`."""
    digits = record_digest(entry, ordinal).hex()
    variant = "89ab"[int(digits[16], 16) % 4]
    last = f"4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"
    return f"{digits[:8]}-{digits[8:12]}-{last}"


def written_ids(entries: Iterable[Entry]) -> dict[str, EntryId]:
    """Map the ids that `entries` have in an exported file to the entries' own ids."""
    return {
        written_id(entry.id, ordinal): entry.id
        for entry in entries
        for ordinal in range(max(1, entry.body.count(_TOOL_RESULT)))
    }
