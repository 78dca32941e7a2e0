"""Append the items of a source to a session, one piece of the source per commit.

Each commit contains a piece of the file as a blob, the ``import_source`` entry of the piece, and
the entries made from the piece. All commits except the last are marked as incomplete, so the
session is ``importing`` until the last commit. After a crash, a new import of the file finds the
stored pieces by their offsets and adds the missing pieces. Every commit names the head that it
expects, and fails if the head has moved. Therefore, even two concurrent imports add each entry only
once.
"""

from __future__ import annotations

import asyncio
from array import array
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from perdure.errors import HeadConflict, SessionExists
from perdure.interop.formats.items import Item, body_without_source, with_source
from perdure.interop.formats.sources.content import line_number_at
from perdure.interop.formats.sources.outline import digest_of_opaque, with_usage
from perdure.interop.formats.sources.reader import Source, Stretch
from perdure.session.codec import new_side
from perdure.session.entries import NewEntry, Ref, Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash, entry_id
from perdure.session.info import StreamHeader
from perdure.session.kinds import OPAQUE
from perdure.session.messages import MESSAGE
from perdure.session.notes import ImportSource, LeafMoved, SourcePlace
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore
from perdure.stores.validation import named_contents

T = TypeVar("T")

_FRESH, _ELSEWHERE, _NOWHERE = -1, -2, -3
_ATTEMPTS = 10


async def after_conflicts(work: Callable[[], Awaitable[T]], pieces: int = 0) -> T:
    """Return the result of `work`; repeat `work` if another writer committed in between.

    `work` makes about `pieces` commits. Each commit can conflict with another writer, so the number
    of attempts grows with `pieces`.
    """
    for _ in range(_ATTEMPTS + pieces - 1):
        try:
            return await work()
        except (SessionExists, HeadConflict):
            continue
    return await work()


class Base(msgspec.Struct, frozen=True):
    """The state of a session before an import: which part of the source it already contains.

    Shape: `known` maps the position of an item to its entry in the session. `begin` is the offset
    in the file at which the new part begins. `parts` lists, for each stored piece before `begin`,
    the offset of the piece and the sequence number of its entry. `with_usage` are the messages that
    have a usage. `has_own_leaf` means that perdure moved the leaf (the end of the conversation), so
    the import does not move it. `is_cut_off` means that the import of the part before `begin` was
    not completed. `opaque` maps the digest of each unreadable line to the entries of the line. The
    first `copied_lines` lines are copies of the parent's entries. The items in `left_out` are not
    added, because the header of the session has their content.
    """

    stream: StreamId
    head: int
    leaf: EntryId | None
    known: Mapping[int, EntryId] = {}
    begin: int = 0
    parts: tuple[tuple[int, int], ...] = ()
    with_usage: Collection[EntryId] = ()
    has_own_leaf: bool = False
    is_cut_off: bool = False
    opaque: Mapping[bytes, Sequence[EntryId]] = {}
    copied_lines: int = 0
    left_out: Collection[int] = ()


class Added(msgspec.Struct):
    """Counts of the entries and messages added so far."""

    entries: int = 0
    messages: int = 0
    malformed: tuple[int, ...] = ()
    is_new: bool = False


class ItemAppend:
    """Adds the new items of `source` to a session in the state `base`; `name` names the file."""

    def __init__(self, source: Source, name: str, base: Base, added: Added) -> None:
        self._source = source
        self._name = name
        self._base = base
        self._added = added
        self._places = _Places(base, len(source.parsed.items))
        self._leave_out_unread()
        for position in base.left_out:
            self._places.leave_out(position, source.parsed.items[position].parent, None)
        self._head = base.head
        self._leaf = base.leaf
        self._end = base.begin
        self._line = line_number_at(source.content, base.begin)
        self._first_line = self._line
        self._parts = list(base.parts)
        self._position = 0
        self._counted = self._groups_with_usage()

    async def run(
        self, store: SessionStore, at: int, piece_bytes: int, create: StreamHeader | None = None
    ) -> None:
        """Commit all items.

        Durable: each piece of the source is durable after its commit, and the whole source is
        durable when the call returns.
        Raises: FormatError if the source changed meanwhile. Raises HeadConflict if another writer
        changed the session. Other errors are those of ``SessionStore.commit``.
        """
        stretches = self._source.stretches(self._base.begin, piece_bytes)
        loop = asyncio.get_running_loop()
        # One thread: every thread that ever held a piece would keep memory for one.
        with ThreadPoolExecutor(1, "perdure-import") as thread:
            while True:
                stretch = await loop.run_in_executor(thread, next, stretches, None)
                if stretch is None:
                    break
                step = await loop.run_in_executor(thread, self._step, stretch, at, create)
                if step is None:
                    continue
                await store.commit(step.commit)
                self._note(stretch, step, is_new=create is not None)
                create = None

    def has_only_known(self) -> bool:
        """Return whether the session already has all items of the file's new part.

        The session has all items if the new part comes from an export of this session.
        """
        items, known = self._source.parsed.items, self._base.known
        if self._places.has_fresh():
            return False
        if any(line.number >= self._first_line for line in self._source.parsed.malformed):
            return False
        return any(items[position].offset >= self._base.begin for position in known)

    def _leave_out_unread(self) -> None:
        """Leave out the parts of imported lines that an older version of perdure did not read.

        If a part that was not read before were now appended below its parent, it would form a
        branch beside the later messages. The children of a left-out part become children of the
        opaque entry of its line. If the line has no opaque entry, the children of the left-out part
        become children of the part's parent.
        """
        base, items, places = self._base, self._source.parsed.items, self._places
        if base.is_cut_off or not base.begin:
            return
        waiting = {digest: list(entries) for digest, entries in base.opaque.items()}
        for position in range(len(items)):
            item = items[position] if places.is_fresh(position) else None
            if item is None or item.offset + item.length >= base.begin:
                continue
            opaque: list[EntryId] = []
            if waiting and item.lane == "tree":
                line = self._source.content.read(item.offset, item.length)
                opaque = waiting.get(digest_of_opaque(line), opaque)
            places.leave_out(position, item.parent, opaque.pop(0) if opaque else None)

    # -- one commit

    def _step(self, stretch: Stretch, at: int, create: StreamHeader | None) -> _Step | None:
        """Return the commit that adds the piece `stretch` of the source; None if nothing is new."""
        fresh = list(self._fresh(stretch.items))
        piece = self._source.content.read(self._end, stretch.end - self._end)
        pieces: tuple[bytes, ...] = ()
        entries: list[NewEntry] = []
        if piece or stretch.is_last:
            self._parts.append((self._end, self._head + 1))
            entries.append(new_side(self._import_source(piece, stretch)))
            pieces = (piece,)
        elif not fresh:
            return None
        first = self._head + 1
        for position, item in fresh:
            seq = first + len(entries)
            entries.append(self._entry(item, first))
            self._places.put(position, seq)
            self._follow(position, item)
        self._end = stretch.end
        self._line += piece.count(b"\n")
        entries += self._moving(is_last=stretch.is_last)
        self._head += len(entries)
        write = Write(
            is_received=True,
            stream=self._base.stream,
            create=create,
            entries=tuple(entries),
            expected_head=None if create is not None else first - 1,
        )
        messages = sum(item.kind == MESSAGE for _, item in fresh)
        # Media of items already in the session are not referenced by new entries.
        blobs = named_contents((*pieces, *stretch.blobs), entries)
        return _Step(Commit(writes=(write,), at=at, blobs=blobs), len(fresh), messages)

    def _fresh(self, items: list[Item]) -> Iterator[tuple[int, Item]]:
        """Yield the position of each item that is not in the session yet, and the item."""
        for item in items:
            position = self._position
            self._position += 1
            if self._places.is_fresh(position):
                # An older part of the same answer has the usage already.
                yield position, with_usage(item, None) if item.group in self._counted else item

    def _entry(self, item: Item, first: int) -> NewEntry:
        is_tree = item.lane == "tree"
        body = body_without_source(item, self._places)
        if item.kind != OPAQUE:
            body = with_source(body, self._place_of(item))
        return NewEntry(
            kind=item.kind,
            body=body,
            v=item.version,
            lane=item.lane,
            parent=self._places.reference(item.parent, first) if is_tree else None,
            about=None if is_tree else self._places.reference(item.about, first),
            at=item.at,
            alias=item.alias,
        )

    def _place_of(self, item: Item) -> SourcePlace:
        number = bisect_right(self._parts, item.offset, key=lambda part: part[0]) - 1
        is_copy = item.number <= self._base.copied_lines
        return SourcePlace(self._parts[max(0, number)][1], item.offset, item.length, is_copy)

    def _import_source(self, piece: bytes, stretch: Stretch) -> ImportSource:
        return ImportSource(
            format=self._source.parsed.format,
            name=self._name,
            blob=blob_hash(piece),
            offset=self._end,
            length=len(piece),
            first_line=self._line,
            lines=piece.count(b"\n") + (not piece.endswith(b"\n") and bool(piece)),
            malformed=self._malformed_lines(stretch),
            file_session=self._source.parsed.header.session,
            has_more=not stretch.is_last,
        )

    def _malformed_lines(self, stretch: Stretch) -> tuple[int, ...]:
        return tuple(number for number in stretch.malformed if number >= self._first_line)

    # -- the leaf

    def _follow(self, position: int, item: Item) -> None:
        if item.lane == "tree":
            self._leaf = self._places[position]
        elif item.kind == LeafMoved.kind:
            target = (item.references or {}).get("target")
            self._leaf = None if target is None else self._places[target]

    def _moving(self, *, is_last: bool) -> list[NewEntry]:
        """Return the entry that moves the leaf (the end of the conversation).

        The list is empty if the leaf is already at the right place.
        """
        wanted = self._base.leaf
        if not self._base.has_own_leaf:
            leaf = self._source.parsed.leaf
            wanted = None if leaf is None else self._places[leaf] if is_last else self._leaf
        if wanted == self._leaf:
            return []
        self._leaf = wanted
        moved = new_side(LeafMoved(wanted))
        if self._base.has_own_leaf:  # perdure's own: no later import may take it for its own move
            return [moved]
        place = SourcePlace(self._parts[-1][1], self._source.content.length, 0)
        return [msgspec.structs.replace(moved, body=with_source(moved.body, place))]

    # -- known entries, and results

    def _groups_with_usage(self) -> frozenset[str]:
        items, base = self._source.parsed.items, self._base
        groups = {items[n].group for n, entry in base.known.items() if entry in base.with_usage}
        return frozenset(group for group in groups if group is not None)

    def _note(self, stretch: Stretch, step: _Step, *, is_new: bool) -> None:
        added = self._added
        added.is_new = added.is_new or is_new
        added.malformed += self._malformed_lines(stretch)
        added.entries += step.entries
        added.messages += step.messages


class _Step(msgspec.Struct, frozen=True):
    commit: Commit
    entries: int
    messages: int


class _Places:
    """Maps each item of a source to its entry, which might not be stored yet.

    The map uses eight bytes per item.
    """

    def __init__(self, base: Base, count: int) -> None:
        self._stream = base.stream
        self._own = f"{base.stream}/"
        self._seqs = array("q", [_FRESH]) * count
        self._others: dict[int, EntryId] = {}
        for position, entry in base.known.items():
            self._put_known(position, entry)

    def _put_known(self, position: int, entry: EntryId) -> None:
        if entry.startswith(self._own):
            self._seqs[position] = int(entry[len(self._own) :])
        else:
            self._seqs[position] = _ELSEWHERE
            self._others[position] = entry

    def is_fresh(self, position: int) -> bool:
        return self._seqs[position] == _FRESH

    def has_fresh(self) -> bool:
        return _FRESH in self._seqs

    def put(self, position: int, seq: int) -> None:
        self._seqs[position] = seq

    def leave_out(self, position: int, parent: int | None, entry: EntryId | None) -> None:
        """Use `entry` for the item at `position`; if `entry` is None, use the entry of `parent`."""
        if entry is not None:
            self._put_known(position, entry)
            return
        self._seqs[position] = _NOWHERE if parent is None else self._seqs[parent]
        if self._seqs[position] == _ELSEWHERE and parent is not None:
            self._others[position] = self._others[parent]

    def __getitem__(self, position: int, /) -> EntryId | None:
        seq = self._seqs[position]
        if seq == _NOWHERE:
            return None
        return self._others[position] if seq == _ELSEWHERE else entry_id(self._stream, seq)

    def reference(self, position: int | None, first: int) -> Ref | None:
        """Return a reference to the entry of the item at `position`.

        If the entry is part of the current write, the reference is relative to `first`, the seq of
        the first entry of this write.
        """
        if position is None:
            return None
        seq = self._seqs[position]
        return Sibling(seq - first) if seq >= first else self[position]
