"""Read a file in perdure's own format as a log: check it once, then read it entry by entry.

Invariant: only the offset and a digest of each line stay in memory; the content of a line is in
memory only while it is needed. The first pass finds everything that a store would reject, before
anything is written. This module applies the rules of stores without using a store.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from perdure.errors import FormatError, InvalidEntry, InvalidParent, TurnOpen
from perdure.interop.formats import native
from perdure.interop.formats.native import Kept, Named
from perdure.interop.formats.sources.content import Content
from perdure.session.codec import entry_of_line
from perdure.session.entries import Entry, NewEntry, Ref, Sibling, copied, with_references
from perdure.session.ids import EntryId, StreamId, blob_hash, entry_id, place_of
from perdure.session.info import StreamHeader
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.notes import Note
from perdure.stores.append_rules import initial_state, plan_append, state_after
from perdure.stores.marks import AUTHORITY_KINDS
from perdure.stores.protocol import EMPTY, Lease, Write

_TURNS = (TurnStarted.kind, TurnFinished.kind)
_GIVING = AUTHORITY_KINDS | {Note.kind}
"""Kinds that may grant permissions, including notes.

A program asks ``Session.is_in_force`` before it acts on its note.
"""

_CHANGED = "it was changed while it was read"
_SOME_BYTES = 64 * 1024
"""Units: bytes. Entries whose lines have about this total size are checked together."""


class LogStretch(msgspec.Struct, frozen=True):
    """Consecutive entries, and the blobs of these entries that no earlier piece contains."""

    entries: tuple[Entry, ...]
    blobs: tuple[bytes, ...]


class LogFile:
    """The log in the file `content`; all lines are valid.

    Shape: entries are returned with the ids of the stream that the caller names, which can be
    another stream than in the file.
    Raises: FormatError if the log is invalid, or if the file changed since the check.
    """

    def __init__(self, content: Content) -> None:
        self._content = content
        self._offsets = array("q")
        self._lengths = array("q")
        self._digests = array("q")
        self._aliases: dict[int, str] = {}
        self._blobs: dict[str, tuple[int, int]] = {}
        self._last_turn = self._last_authority = EMPTY
        self.header, records = native.open_file(content)
        rules = _Rules(self.header)
        for line, record in records:
            match record:
                case Entry():
                    self._note(record, line.offset, line.content)
                    rules.take(record, len(line.content))
                case Named():
                    self._name(record.aliases)
                case Kept():
                    self._blobs[record.name] = (line.offset, len(line.content))
        rules.apply()
        if "" in self._aliases.values():
            rules.refusal = rules.refusal or InvalidEntry("'' cannot be a foreign id")
        self._refusal = rules.refusal

    def check(self) -> None:
        """Raise FormatError if stores would reject the log."""
        if self._refusal is not None:
            raise FormatError(self._content.name, f"it is not a log: {self._refusal}")

    def _note(self, entry: Entry, offset: int, line: bytes) -> None:
        self._offsets.append(offset)
        self._lengths.append(len(line))
        self._digests.append(hash(line))
        if entry.kind in _TURNS:
            self._last_turn = entry.seq
        if entry.kind in _GIVING:
            self._last_authority = entry.seq

    def _name(self, aliases: Mapping[str, EntryId]) -> None:
        for alias, entry in aliases.items():
            place = _place_in(self.header.id, entry)
            if place is not None:
                self._aliases[place] = alias

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._offsets)

    @property
    def length(self) -> int:
        """The length of the file. Units: bytes."""
        return self._content.length

    def has_turns(self, first: int) -> bool:
        """Return whether an entry at seq `first` or later begins or ends a turn."""
        return self._last_turn >= first

    def has_authority(self, first: int) -> bool:
        """Return whether an entry from seq `first` on has a kind that can grant permissions.

        An entry of a kind that can grant permissions grants them only if the user wrote the entry.
        """
        return self._last_authority >= first

    def alias(self, seq: int) -> str | None:
        """Return the foreign id (alias) of the entry `seq`; None if it has no foreign id."""
        return self._aliases.get(seq)

    def entry(self, seq: int, stream: StreamId) -> Entry:
        """Return the entry with the number `seq` as an entry of `stream`."""
        line = self._content.read(self._offsets[seq], self._lengths[seq])
        if hash(line) != self._digests[seq]:
            raise FormatError(self._content.name, _CHANGED)
        entry = entry_of_line(line)
        if stream == self.header.id:
            return entry
        return native.move_entry(entry, stream, seq, _NewIds(self.header.id, stream, len(self)))

    def stretches(self, first: int, stream: StreamId, piece_bytes: int) -> Iterator[LogStretch]:
        """Yield the entries from seq `first` on, in pieces of approximately `piece_bytes`.

        The yielded entries belong to `stream`.
        """
        entries: list[Entry] = []
        blobs: list[bytes] = []
        passed: set[str] = set()
        size = 0
        for seq in range(first, len(self)):
            entry = self.entry(seq, stream)
            named = {*native.blob_names((entry,))} & self._blobs.keys() - passed
            added = self._lengths[seq] + sum(self._blobs[name][1] for name in named)
            if entries and size + added > piece_bytes:
                yield LogStretch(tuple(entries), tuple(blobs))
                entries, blobs, size = [], [], 0
            passed |= named
            entries.append(entry)
            blobs += [self._blob(name) for name in sorted(named)]
            size += added
        if entries:
            yield LogStretch(tuple(entries), tuple(blobs))

    def _blob(self, name: str) -> bytes:
        try:
            content = native.blob_of_line(self._content.read(*self._blobs[name]))
        except ValueError as error:
            raise FormatError(self._content.name, _CHANGED) from error
        if blob_hash(content) != name:
            raise FormatError(self._content.name, _CHANGED)
        return content

    def some(self, first: int, piece_bytes: int) -> int:
        """Return how many entries from seq `first` on together have about `piece_bytes`.

        The result is at least 1 unless the file has no such entry.
        """
        size = count = 0
        while first + count < len(self) and (not count or size < piece_bytes):
            size += self._lengths[first + count]
            count += 1
        return count

    def in_common(self, entries: Sequence[Entry], first: int, stream: StreamId) -> int:
        """Return how many of `entries` equal the entries of the file from seq `first` on.

        The count ends at the first difference.
        """
        for number, entry in enumerate(entries):
            seq = first + number
            if seq >= len(self) or entry != self.entry(seq, stream):
                return number
        return len(entries)


def as_new(entry: Entry, first: int, alias: str | None) -> NewEntry:
    """Convert `entry` to append it in a write whose first entry has the seq `first`.

    A reference to an entry of the same write becomes a `Sibling`.
    """

    def refer(target: Ref) -> Ref:
        seq = None if isinstance(target, Sibling) else _place_in(entry.stream, target)
        return target if seq is None or seq < first else Sibling(seq - first)

    return with_references(copied(entry, alias), refer)


def _place_in(stream: StreamId, entry: str) -> int | None:
    """Return the seq of `entry`; None if it does not belong to `stream`."""
    of, seq = place_of(entry) or (None, 0)
    return seq if of == stream else None


class _Rules:
    """Checks entries against the append rules before there is a stream to append them to."""

    def __init__(self, header: StreamHeader) -> None:
        self._lease = Lease(header.id, "", 1, 0)
        self._state = msgspec.structs.replace(initial_state(header, b""), epoch=self._lease.epoch)
        self._is_tree = bytearray()
        self._waiting: list[Entry] = []
        self._bytes = 0
        self.refusal: InvalidEntry | InvalidParent | TurnOpen | None = None

    def take(self, entry: Entry, length: int) -> None:
        if self.refusal is not None:
            return
        self._waiting.append(entry)
        self._bytes += length
        if self._bytes >= _SOME_BYTES:
            self.apply()

    def apply(self) -> None:
        """Check the collected entries against the rules, unless an earlier entry was rejected."""
        if self.refusal is None:
            try:
                self._apply()
            except (InvalidEntry, InvalidParent, TurnOpen) as error:
                self.refusal = error

    def _apply(self) -> None:
        first = self._state.head + 1
        news = tuple(as_new(entry, first, None) for entry in self._waiting)
        write = Write(stream=self._state.header.id, entries=news, lease=self._lease)
        admission = plan_append(self._state, write, 0, self._sees)
        self._is_tree += bytes(entry.lane == "tree" for entry in self._waiting)
        self._state = state_after(self._state, admission, b"")
        self._waiting, self._bytes = [], 0

    def _sees(self, entry: EntryId) -> bool:
        seq = _place_in(self._state.header.id, entry)
        return seq is not None and seq < len(self._is_tree) and bool(self._is_tree[seq])


class _NewIds(Mapping[EntryId, EntryId]):
    """Maps the ids of a log of `count` entries to ids of another stream."""

    def __init__(self, old: StreamId, new: StreamId, count: int) -> None:
        self._old, self._new, self._count = old, new, count

    def __getitem__(self, entry: EntryId) -> EntryId:
        seq = _place_in(self._old, entry)
        if seq is None or seq >= self._count or entry_id(self._old, seq) != entry:
            raise KeyError(entry)
        return entry_id(self._new, seq)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[EntryId]:
        return (entry_id(self._old, seq) for seq in range(self._count))
