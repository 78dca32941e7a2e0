"""Bundles without a store: entries written by a test, or taken from a random log."""

from __future__ import annotations

import msgspec

from perdure.interop.formats.native import Bundle
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import Entry, Lane
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.info import StreamHeader
from perdure.session.kinds import TreeBody
from perdure.session.messages import Message
from perdure.session.notes import CompactionUndone, LeafMoved, SideBody
from tests.fakes.tree_log import TreeLog

BEGUN = 1_750_000_000_250
HEADER = StreamHeader(StreamId("s"), BEGUN, cwd="/srv/tides", title="Tides")


class Making:
    """A bundle that a test builds: by default, each entry follows the entry before it."""

    def __init__(self, header: StreamHeader = HEADER) -> None:
        self.header = header
        self.entries: list[Entry] = []
        self.aliases: dict[str, EntryId] = {}
        self.blobs: list[bytes] = []
        self._leaf: EntryId | None = None

    def say(self, *bodies: Message | TreeBody, parent: EntryId | str | None = "leaf") -> EntryId:
        """Append tree entries; return the id of the last one."""
        for body in bodies:
            new = new_tree(body)
            above = self._leaf if parent == "leaf" else parent
            above = None if above is None else EntryId(above)
            self._leaf = self._append(new.kind, new.body, "tree", above, None)
            parent = "leaf"
        assert self._leaf is not None
        return self._leaf

    def raw(self, kind: str, body: bytes) -> EntryId:
        """Append a tree entry of any kind."""
        self._leaf = self._append(kind, body, "tree", self._leaf, None)
        return self._leaf

    def note(self, body: SideBody, about: EntryId | None = None) -> EntryId:
        """Append a side entry; return its id."""
        new = new_side(body)
        if isinstance(body, LeafMoved):
            self._leaf = body.target
        return self._append(new.kind, new.body, "side", None, about)

    def made(self) -> Bundle:
        """The bundle."""
        return Bundle(self.header, tuple(self.entries), dict(self.aliases), tuple(self.blobs))

    def _append(
        self, kind: str, body: bytes, lane: Lane, parent: EntryId | None, about: EntryId | None
    ) -> EntryId:
        seq = len(self.entries)
        at = BEGUN + 1_000 * (seq + 1)
        stream = self.header.id
        self.entries.append(Entry(stream, seq, lane, parent, about, at, kind, 1, body))
        return entry_id(stream, seq)


def bundle_of_log(log: TreeLog, leaf: EntryId | None) -> Bundle:
    """Return the session that `log` describes, with its conversation at `leaf`."""
    entries = list(log.by_id.values())
    for about in sorted(log.undone):
        entries.append(_side(len(entries), CompactionUndone(), about))
    entries.append(_side(len(entries), LeafMoved(leaf), None))
    return Bundle(msgspec.structs.replace(HEADER, title=None), tuple(entries), {}, ())


def _side(seq: int, body: SideBody, about: EntryId | None) -> Entry:
    new = new_side(body)
    return Entry(StreamId("note"), seq, "side", None, about, BEGUN, new.kind, new.v, new.body)
