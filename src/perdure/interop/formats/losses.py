"""Count the content of a session that a format cannot express, and describe it in words.

The functions of this module are pure. This module finds the losses that are common to all foreign
formats; the writer of each format finds the other losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from perdure.codecs.shared_keys import meta_of
from perdure.interop.formats.items import IMPORT, REDACTED, described_source
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.info import StreamHeader
from perdure.session.messages import ThinkingPart, UnknownPart
from perdure.session.notes import (
    Adopted,
    CompactionUndone,
    ImportedRecord,
    ImportSource,
    Label,
    LeafMoved,
    SessionInfoChanged,
)

UNKNOWN_PART = "part of an unknown type"
WITHHELD = "thinking that its provider withheld"
MISPLACED = "part that a message of its role cannot hold"
MEDIUM = "medium, named only"
OUTSIDE = "message outside the context, written as extension state"

UNDONE = "undone compaction, written outside the context"

DEEP = "value nested too deeply, written as text"
HALF = "line that was imported half-written and has changed since"

_LEFT_OF_A_FILE = f'"type":"{REDACTED}"'.encode()
_HELD_NOTES = frozenset(
    note.kind
    for note in (
        Adopted,
        CompactionUndone,
        ImportedRecord,
        ImportSource,
        Label,
        LeafMoved,
        SessionInfoChanged,
    )
)
"""Kinds of side entries that session files support, or whose loss is counted separately."""

_PLACE = ("format", "session")
"""Keys that every description of a source has, so they never count as losses."""


def difference_text(added: int, *, is_rewritten: bool) -> str:
    """Describe how an export differs from the imported file.

    `added` is the number of added lines; `is_rewritten` means that the other lines changed too.
    """
    lines = "1 line" if added == 1 else f"{added} lines"
    also = ", and its lines rewritten" if is_rewritten else ""
    return f"the file differs from the imported one: {lines} added here{also}"


class Losses:
    """Counts the content that a conversion loses."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._notes: Counter[str] = Counter()

    def add(self, what: str, count: int = 1) -> None:
        """Count `count` losses; `what` is a singular noun phrase such as "session field"."""
        self._counts[what] += count

    def add_part(self, part: object) -> None:
        """Count a part that was not written."""
        match part:
            case UnknownPart():
                self.add(UNKNOWN_PART)
            case ThinkingPart(is_redacted=True):
                self.add(WITHHELD)
            case _:
                self.add(MISPLACED)

    def add_meta(self, entry: Entry, held: Collection[str] = ()) -> None:
        """Count the metadata fields of the imported message `entry` that are not exported.

        `held` are the names of the fields that the exported file contains.
        """
        for name in meta_of(entry.body):
            self.add(f"message field {name!r}", name not in held)

    def add_ids(
        self,
        tree: Iterable[EntryId],
        aliases: Mapping[str, EntryId],
        held: Mapping[EntryId, str],
    ) -> None:
        """Count the foreign ids of `tree` entries that are not exported.

        `aliases` maps foreign ids to entries, and `held` maps entries to their ids in the exported
        file.
        """
        ids = frozenset(tree)
        lost = sum(entry in ids and held.get(entry) != alias for alias, entry in aliases.items())
        self.add("foreign id of an entry", lost)

    def add_records(self, entries: Iterable[Entry]) -> None:
        """Count those `entries` that are imported records from outside the conversation."""
        bodies = (entry.body for entry in entries if entry.kind == ImportedRecord.kind)
        found = sum(_LEFT_OF_A_FILE not in body for body in bodies)
        self.add("record outside the conversation", found)

    def add_header(self, header: StreamHeader) -> None:
        """Count the fields of `header` that a newly written file cannot contain."""
        if header.parent is not None:
            self.add("origin of the session")
        if header.origin == "subagent":
            self.add("mark of a subagent's session")
        names = [name for name in described_source(header) if name not in _PLACE]
        names += [name for name in header.metadata or {} if name not in (IMPORT, REDACTED)]
        for name in names:
            self.add(f"session field {name!r}")

    def add_notes(self, entries: Iterable[Entry]) -> None:
        """Count perdure's own side entries among `entries`; foreign formats lack such records."""
        self._notes += Counter(
            entry.kind
            for entry in entries
            if entry.lane == "side" and entry.kind not in _HELD_NOTES
        )

    def texts(self) -> list[str]:
        """Return a text for each kind of loss, with its count."""
        texts = [
            f"not exported: {what} ({count})"
            for what, count in sorted(self._counts.items())
            if count
        ]
        if self._notes:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self._notes.items()))
            texts.append(f"not exported: perdure's own entries ({kinds})")
        return texts
