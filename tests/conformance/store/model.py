"""A reference model of the store contract: plain lists, searched from end to end.

The model has no index, no hash and no transaction, so it is slow, but short enough to review.
`test_machine` compares every backend with the model. The model supports only the kinds of entries
that the machine appends.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from perdure.errors import HeadConflict, InvalidEntry, InvalidParent, LeaseLost, TurnOpen
from perdure.session.codec import encode
from perdure.session.entries import LEAF, Entry, NewEntry
from perdure.session.fold import ContextWindow, undone_of, window_of
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import SessionInfo, StreamHeader, info_after, info_of
from perdure.session.notes import LeafMoved, Queued
from perdure.session.tree import branch_to
from perdure.stores.protocol import Commit, Write


@dataclass
class Stream:
    """One stream: its own entries and its state."""

    header: StreamHeader
    leaf: EntryId | None
    info: SessionInfo
    entries: list[Entry] = field(default_factory=list[Entry])
    open_turn: int | None = None
    epoch: int = 0
    until: int = 0

    @property
    def head(self) -> int:
        """The last seq."""
        return len(self.entries) - 1


@dataclass
class Model:
    """The model of a namespace. `log` contains every entry of every stream in commit order."""

    streams: dict[StreamId, Stream] = field(default_factory=dict[StreamId, Stream])
    log: list[Entry] = field(default_factory=list[Entry])

    def after(self, commit: Commit) -> tuple[Model, tuple[tuple[Entry, ...], ...]]:
        """Return the model after `commit`; raise the errors that a store must raise."""
        streams = {
            id_: replace(stream, entries=list(stream.entries))
            for id_, stream in self.streams.items()
        }
        model = Model(streams, list(self.log))
        appended = tuple(model._take(write, commit.at) for write in commit.writes)
        model.log += [entry for entries in appended for entry in entries]
        return model, appended

    def _take(self, write: Write, at: int) -> tuple[Entry, ...]:
        if write.create is not None:
            self._create(write.create)
        into = self.streams[write.stream]
        if write.lease is not None and write.lease.epoch != into.epoch:
            raise LeaseLost(write.stream, write.lease.epoch, into.epoch)
        if write.expected_head is not None and write.expected_head != into.head:
            raise HeadConflict(write.stream, write.expected_head, into.head)
        first = len(into.entries)
        for new in write.entries:
            self._append_one(into, new, at, has_lease=write.lease is not None)
        into.info = info_after(into.info, into.entries[first:])
        return tuple(into.entries[first:])

    def _create(self, header: StreamHeader) -> None:
        info = info_of(header)
        if header.fork is not None:
            origin = self.streams[header.fork.stream].info
            messages = sum(entry.kind == "message" for entry in self._shared(header))
            first_text = origin.first_text if messages else None
            inherited = msgspec.structs.replace(origin, messages=messages, first_text=first_text)
            info = info_of(header, inherited)
        leaf = header.fork.leaf if header.fork else None
        self.streams[header.id] = Stream(header, leaf, info)

    def _append_one(self, into: Stream, new: NewEntry, at: int, *, has_lease: bool) -> None:
        stream = into.header.id
        is_beside = into.open_turn is not None and not has_lease
        if new.lane == "tree" and new.parent is not LEAF:
            self._check_sees(stream, new.parent)
        parent = into.leaf if new.parent is LEAF else new.parent
        entry = Entry(
            stream=stream,
            seq=into.head + 1,
            lane="side" if is_beside else new.lane,
            parent_id=EntryId(str(parent)) if new.lane == "tree" and parent else None,
            about=EntryId(str(new.about)) if new.about else None,
            at=at,
            kind=new.kind,
            v=new.v,
            body=new.body,
        )
        if new.lane == "tree" and is_beside:
            body = encode(Queued(new.kind, msgspec.Raw(new.body), new.v))
            entry = msgspec.structs.replace(entry, parent_id=None, kind="queued", v=1, body=body)
        elif new.lane == "tree":
            into.leaf = entry.id
        elif new.kind == "leaf":
            self._move(into, new, is_beside=is_beside)
        elif new.kind.startswith("turn_"):
            _turn(into, entry, has_lease=has_lease)
        into.entries.append(entry)

    def _move(self, into: Stream, new: NewEntry, *, is_beside: bool) -> None:
        if is_beside:
            raise TurnOpen(into.header.id, into.open_turn or 0)
        into.leaf = msgspec.json.decode(new.body, type=LeafMoved).target
        self._check_sees(into.header.id, into.leaf)

    def _check_sees(self, stream: StreamId, reference: object) -> None:
        if reference is not None and all(e.id != reference for e in self.tree(stream)):
            raise InvalidParent(str(reference), stream, "not seen")

    def tree(self, stream: StreamId, upto: int | None = None) -> list[Entry]:
        """Return the shared tree entries that `stream` sees, and its own up to the seq `upto`."""
        own = self.streams[stream].entries
        own = own if upto is None else own[: upto + 1]
        seen = self._shared(self.streams[stream].header)
        return seen + [entry for entry in own if entry.lane == "tree"]

    def _shared(self, header: StreamHeader) -> list[Entry]:
        fork = header.fork
        if fork is None:
            return []
        seen = self.tree(fork.stream, fork.head)
        if fork.scope == "path":
            return branch_to(fork.leaf, {entry.id: entry for entry in seen})
        return seen

    def notes(
        self, stream: StreamId, kinds: tuple[str, ...], upto: int | None = None
    ) -> list[Entry]:
        """Return the side entries of `kinds` that `stream` sees."""
        own = self.streams[stream].entries
        own = own if upto is None else own[: upto + 1]
        fork = self.streams[stream].header.fork
        shared = [] if fork is None else self.notes(fork.stream, kinds, fork.head)
        return shared + [entry for entry in own if entry.lane == "side" and entry.kind in kinds]

    def branch(self, stream: StreamId, leaf: EntryId | None) -> list[Entry]:
        """Return the branch to `leaf`."""
        return branch_to(leaf, {entry.id: entry for entry in self.tree(stream)})

    def window(self, stream: StreamId, leaf: EntryId | None) -> ContextWindow:
        """Return the context window of the branch to `leaf`."""
        undone = undone_of(self.notes(stream, ("compaction_undone",)))
        return window_of(self.branch(stream, leaf), undone)


def _turn(into: Stream, entry: Entry, *, has_lease: bool) -> None:
    is_start = entry.kind == "turn_started"
    if not has_lease or (into.open_turn is None and not is_start):
        raise InvalidEntry("it needs a lease, or an open turn")
    if is_start and into.open_turn is not None:
        raise TurnOpen(into.header.id, into.open_turn)
    into.open_turn = entry.seq if is_start else None
