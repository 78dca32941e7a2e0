"""Make forks by copying entries, because this backend cannot reference entries of another file.

A fork gets its own copies of the tree entries that it sees, and of their labels and undone
compactions. In the copies and in the other entries of the commit, a reference to a copied entry is
changed to refer to the copy. The fork's header has the origin as parent, and no fork point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from perdure.codecs.shared_keys import with_field
from perdure.errors import LeafConflict
from perdure.session.codec import ENTRY_NOTES, new_side
from perdure.session.entries import Entry, NewEntry, Ref, Sibling, copied, with_references
from perdure.session.ids import EntryId, entry_id
from perdure.session.info import ForkPoint, StreamHeader, received_entries
from perdure.session.kinds import BranchSummary, Compaction, ModelChange, ThinkingChange
from perdure.session.notes import SOURCE_FIELD, LeafMoved, SessionReceived, SourcePlace, source_of
from perdure.stores.append_rules import ForkOrigin, initial_state
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.contents import entries_of, media_of
from perdure.stores.jsonl.index import Log
from perdure.stores.protocol import Write
from perdure.stores.validation import names_in

_REFERENCES = {Compaction.kind: "first_kept", BranchSummary.kind: "from_id"}
_SOURCE = "source"
"""The field with an entry's location in an import original. A fork does not copy this field."""

_SWITCHES = (ModelChange.kind, ThinkingChange.kind)
_NO_PLACE = SourcePlace(part=-1, offset=0, length=0)
"""Marks a copied switch as imported, so that it is not in force (``engine.switches``)."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


class CopiedFork(msgspec.Struct, frozen=True):
    """A fork as a new stream.

    Shape: `write` creates the new stream, and the first `count` entries of `write` are copies.
    `ids` maps an entry of the origin to its copy.
    """

    write: Write
    count: int
    ids: Mapping[EntryId, EntryId] = {}


def copy_fork(origin: Log, header: StreamHeader, fork: ForkPoint, write: Write) -> CopiedFork:
    """Add the copied entries at the beginning of `write`, which creates the fork of `origin`.

    Raises: InvalidEntry, InvalidParent if the fork point does not exist in `origin`; LeafConflict.
    """
    shared = ForkOrigin(origin.info, origin.head, b"", 0)
    initial_state(header, b"", shared, lambda id_: reads.tree_seq(origin, id_) is not None)
    if write.expected_leaf is not msgspec.UNSET and write.expected_leaf != fork.leaf:
        raise LeafConflict(header.id, write.expected_leaf, fork.leaf)
    copies = _Copies(origin, header, fork)
    further = tuple(with_references(new, copies.reference) for new in write.entries)
    return CopiedFork(
        msgspec.structs.replace(
            write,
            create=_own_header(origin, header, fork),
            entries=(*copies.made, *further),
            expected_leaf=msgspec.UNSET,
        ),
        len(copies.made),
        {entry: entry_id(header.id, index) for entry, index in copies.ids.items()},
    )


def contents_of(origin: Log, made: CopiedFork) -> tuple[bytes, ...]:
    """Return the contents that the copies reference, from other programs' lines in `origin`."""
    copies = made.write.entries[: made.count]
    names = names_in(copy.body for copy in copies) & origin.media.keys()
    found = (media_of(origin, name) for name in sorted(names))
    return tuple(content for content in found if content is not None)


def _own_header(origin: Log, header: StreamHeader, fork: ForkPoint) -> StreamHeader:
    return msgspec.structs.replace(
        header,
        fork=None,
        parent=fork.stream,
        title=header.title or origin.info.title,
        cwd=header.cwd or origin.info.cwd,
    )


class _Copies:
    """The copied entries of a fork, in the order of the log; `ids` maps an original to its copy."""

    def __init__(self, origin: Log, header: StreamHeader, fork: ForkPoint) -> None:
        self.made: list[NewEntry] = []
        self.ids: dict[EntryId, int] = {}
        self.stream = header.id
        self._aliases = {entry: alias for alias, entry in origin.aliases}
        received = reads.notes(origin, (SessionReceived.kind,))
        self._received = received_entries(origin.header, origin.header.id, received)
        tree = _visible_seqs(origin, fork)
        for entry in entries_of(origin, tree):
            self._add(entry)
        for note in reads.notes(origin, ENTRY_NOTES):
            if note.seq <= fork.head and note.about in self.ids:
                self._add(note)
        if origin.id_of(tree[-1] if tree else None) != fork.leaf:
            target = None if fork.leaf is None else self.copy_of(fork.leaf)
            self.made.append(new_side(LeafMoved(target)))

    def copy_of(self, entry: EntryId) -> EntryId | None:
        """Return the id of the copy of `entry`; None if it was not copied."""
        index = self.ids.get(entry)
        return None if index is None else entry_id(self.stream, index)

    def reference(self, given: Ref) -> Ref:
        """Adapt the reference `given` to a write that begins with the copied entries."""
        if isinstance(given, Sibling):
            return Sibling(given.index + len(self.made))
        return Sibling(self.ids[given]) if given in self.ids else given

    def _add(self, entry: Entry) -> None:
        self.ids[entry.id] = len(self.made)
        body = relink_body(entry.kind, entry.body, self.copy_of)
        if entry.kind in _SWITCHES and self._is_of_file(entry):
            body = with_field(body, SOURCE_FIELD, _NO_PLACE)
        new = with_references(copied(entry, self._aliases.get(entry.id)), self.reference)
        self.made.append(msgspec.structs.replace(new, body=body))

    def _is_of_file(self, entry: Entry) -> bool:
        return entry.seq < self._received or source_of(entry.body) is not None


def _visible_seqs(origin: Log, fork: ForkPoint) -> list[int]:
    """Return the seqs of the tree entries that the fork sees, in log order."""
    if fork.scope == "path":
        leaf = None if fork.leaf is None else reads.seq_of(origin, fork.leaf)
        return sorted(reads.upwards(origin, leaf))
    rows = enumerate(origin.rows[: fork.head + 1])
    return [seq for seq, row in rows if row.lane == "tree"]


def relink_body(kind: str, body: bytes, copy_of: Callable[[EntryId], EntryId | None]) -> bytes:
    """Return `body` with its entry reference changed to the copy; all other bytes stay the same."""
    field = _REFERENCES.get(kind)
    has_source = b'"source"' in body
    if field is None and not has_source:
        return body
    try:
        fields = _fields.decode(body)
    except (ValueError, RecursionError):
        return body
    if has_source:
        fields.pop(_SOURCE, None)
    if field is not None and field in fields:
        old = _text(fields[field])
        new = None if old is None else copy_of(EntryId(old))
        fields[field] = msgspec.Raw(msgspec.json.encode(new))
    return msgspec.json.encode(fields)


def _text(raw: msgspec.Raw) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str | None)
    except ValueError:
        return None
