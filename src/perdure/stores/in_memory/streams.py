"""Streams of one namespace in this process's memory, and the functions that read them.

A stream's entries are in a list, indexed by seq. A fork stores only its own entries and reads the
shared entries from its origin. Every tree entry has a `Node` with the newest compaction and
settings of its branch. So the cost of reading a context depends only on the number of returned
entries. This module only reads; ``in_memory.append`` changes the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from perdure.errors import EntryNotFound, SessionNotFound
from perdure.session.entries import Entry
from perdure.session.fold import (
    BranchState,
    ContextWindow,
    Placed,
    first_kept_by,
    is_active_compaction,
    undone_among,
    undone_of,
)
from perdure.session.ids import EntryId, StreamId, entry_place, place_of
from perdure.session.memory.open_entries import OPEN_KINDS, unclosed
from perdure.session.notes import CompactionUndone
from perdure.stores.in_memory.vectors import HeldVectors
from perdure.stores.prefixes import only_entry
from perdure.stores.protocol import CommitResult, Problem, StreamState
from perdure.stores.verification import (
    StoredCommit,
    StoredEntry,
    content_lost,
    contents_shown,
    origin_hash_of,
    stream_problems,
)


@dataclass(frozen=True, slots=True)
class Node:
    """A tree entry's place on its branch, and the newest compaction and settings up to it.

    `depth` counts the entries before the node; `messages` counts the messages up to and including
    the node.
    """

    depth: int
    messages: int
    compaction: EntryId | None
    model_change: EntryId | None
    thinking_change: EntryId | None


@dataclass(slots=True)
class HeldStream:
    """The data of one stream in memory.

    `owner` and `until` describe the stream's lease. `shared_messages` is the number of messages
    that a fork inherits from its origin.

    Shape: `rows` is indexed by seq; `notes` maps a kind to its side entries, in order.
    """

    state: StreamState
    genesis: bytes
    shared_messages: int = 0
    rows: list[StoredEntry] = field(default_factory=list[StoredEntry])
    commits: list[StoredCommit] = field(default_factory=list[StoredCommit])
    notes: dict[str, list[Entry]] = field(default_factory=dict[str, list[Entry]])
    aliases: list[tuple[str, EntryId]] = field(default_factory=list[tuple[str, EntryId]])
    owner: str = ""
    until: int = 0
    partial: tuple[int, bytes] | None = None


class KeptCommit(NamedTuple):
    """The commit that used an idempotency key.

    Units: `at`, the commit's time, is in Unix milliseconds.
    """

    asked: bytes
    committed: CommitResult
    at: int


@dataclass(slots=True)
class Heap:
    """The data of one namespace in memory.

    `log` has every entry in commit order: position n is at index n - 1. A removed entry is replaced
    by None, so its position is never reused.
    """

    streams: dict[StreamId, HeldStream] = field(default_factory=dict[StreamId, HeldStream])
    nodes: dict[EntryId, Node] = field(default_factory=dict[EntryId, Node])
    log: list[Entry | None] = field(default_factory=list["Entry | None"])
    keys: dict[str, KeptCommit] = field(default_factory=dict[str, KeptCommit])
    blobs: dict[str, bytes] = field(default_factory=dict[str, bytes])
    vectors: HeldVectors = field(default_factory=HeldVectors)


def held_in(heap: Heap, stream: StreamId) -> HeldStream:
    """Return the data of the stream with the id `stream`.

    Raises: SessionNotFound.
    """
    held = heap.streams.get(stream)
    if held is None:
        raise SessionNotFound(stream)
    return held


def lineage(heap: Heap, held: HeldStream) -> Iterator[tuple[HeldStream, int]]:
    """Yield the stream and its head, then each origin and the last seq shared with its fork."""
    upto = held.state.head
    while True:
        yield held, upto
        fork = held.state.header.fork
        if fork is None:
            return
        held, upto = heap.streams[fork.stream], fork.head


# ---------------------------------------------------------------- single entries


def entry_in(heap: Heap, held: HeldStream, reference: str) -> Entry | None:
    """Return the entry `reference`; None if the stream does not see it.

    A stream sees its own entries, and the entries of its origin that the fork shares.
    """
    entry = _anywhere(heap, reference)
    if entry is None:
        return None
    for near, upto in lineage(heap, held):
        fork = near.state.header.fork
        if entry.stream == near.state.header.id:
            return entry if entry.seq <= upto else None
        if fork is not None and fork.scope == "path" and entry.lane == "tree":
            return entry if fork.leaf and is_on_branch(heap, entry.id, fork.leaf) else None
    return None


def tree_entry_in(heap: Heap, held: HeldStream, reference: EntryId) -> Entry:
    """Return the tree entry with the id `reference`.

    Raises: EntryNotFound if the stream does not see the entry.
    """
    entry = entry_in(heap, held, reference)
    if entry is None or entry.lane != "tree":
        raise EntryNotFound(reference, held.state.header.id)
    return entry


def is_tree_entry(heap: Heap, held: HeldStream, reference: str) -> bool:
    """Return whether the stream sees a tree entry with the id `reference`."""
    entry = entry_in(heap, held, reference)
    return entry is not None and entry.lane == "tree"


def _anywhere(heap: Heap, reference: str) -> Entry | None:
    stream, seq = place_of(reference) or (StreamId(""), 0)
    held = heap.streams.get(stream)
    if held is None or seq > held.state.head:
        return None
    return held.rows[seq].entry


def _entry(heap: Heap, reference: EntryId) -> Entry:
    stream, seq = entry_place(reference)
    return heap.streams[stream].rows[seq].entry


# ---------------------------------------------------------------- branches


def upwards(heap: Heap, leaf: EntryId | None) -> Iterator[Entry]:
    """Yield the tree entries from `leaf` back to its root."""
    while leaf is not None:
        entry = _entry(heap, leaf)
        yield entry
        leaf = entry.parent_id


def is_on_branch(heap: Heap, reference: EntryId, leaf: EntryId | None) -> bool:
    """Return whether the tree entry `reference` is `leaf` or an earlier entry on its branch."""
    sought = heap.nodes.get(reference)
    if sought is None:
        return False
    for entry in upwards(heap, leaf):
        if heap.nodes[entry.id].depth <= sought.depth:
            return entry.id == reference
    return False


def branch_in(
    heap: Heap, leaf: EntryId | None, limit: int | None = None, kind: str | None = None
) -> list[Entry]:
    """Return the entries from the root to `leaf`, optionally only `kind` and the newest `limit`."""
    found: list[Entry] = []
    for entry in upwards(heap, leaf):
        if limit is not None and len(found) >= limit:
            break
        if kind is None or entry.kind == kind:
            found.append(entry)
    found.reverse()
    return found


def around_in(heap: Heap, leaf: EntryId, references: Sequence[EntryId], reach: int) -> list[Placed]:
    """Return the `references` on the branch to `leaf`, each with up to `reach` neighbors per side.

    The call walks the branch in memory, from `leaf` back to the first of `references` and its
    neighbors.
    """
    sought = {each: heap.nodes[each].depth for each in references if each in heap.nodes}
    if not sought:
        return []
    floor = min(sought.values()) - reach
    placed = ((heap.nodes[entry.id].depth, entry) for entry in upwards(heap, leaf))
    path = [Placed(*each) for each in takewhile(lambda each: each[0] >= floor, placed)]
    on = [each.depth for each in path if each.entry.id in sought]
    near = {depth for each in on for depth in range(each - reach, each + reach + 1)}
    return [each for each in reversed(path) if each.depth in near]


def window_in(
    heap: Heap, held: HeldStream, leaf: EntryId | None, limit: int | None = None
) -> ContextWindow:
    """Return the context window (``fold.window_of``) of `leaf`, without reading the whole branch.

    With `limit`, return only the end of the window (``fold.end_of``).
    """
    if leaf is None:
        return ContextWindow(None, (), BranchState(), 0)
    undone = undone_of(notes_in(heap, held, (CompactionUndone.kind,)))
    node = heap.nodes[leaf]
    compaction, taken_back = _compaction_in_force(heap, node, undone)
    start = 0
    if compaction is not None:
        start = _depth_of_first_kept(heap, compaction)
    size = node.depth + 1 - start
    shown = branch_in(heap, leaf, limit=size if limit is None else min(size, limit))
    return ContextWindow(
        leaf=leaf,
        entries=tuple(shown),
        state=BranchState(
            compaction=compaction,
            model_change=_entry(heap, node.model_change) if node.model_change else None,
            thinking_change=_entry(heap, node.thinking_change) if node.thinking_change else None,
        ),
        hidden=start,
        undone=undone_among(shown, undone) | taken_back,
        earlier=size - len(shown),
    )


def _compaction_in_force(
    heap: Heap, node: Node, undone: frozenset[EntryId]
) -> tuple[Entry | None, frozenset[EntryId]]:
    """Return the active compaction, and the newer compactions, which are not active."""
    newest = node.compaction
    passed: list[EntryId] = []
    while newest is not None:
        entry = _entry(heap, newest)
        if is_active_compaction(entry, undone):
            return entry, frozenset(passed)
        passed.append(newest)
        newest = heap.nodes[entry.parent_id].compaction if entry.parent_id else None
    return None, frozenset(passed)


def _depth_of_first_kept(heap: Heap, compaction: Entry) -> int:
    kept = first_kept_by(compaction)
    if kept is not None and is_on_branch(heap, kept, compaction.parent_id):
        return heap.nodes[kept].depth
    return heap.nodes[compaction.id].depth


# ---------------------------------------------------------------- visible entries


def tree_in(heap: Heap, held: HeldStream, limit: int | None = None) -> list[Entry]:
    """Return the newest `limit` tree entries that the stream sees, in log order, origin first."""
    parts: list[list[Entry]] = []
    for near, upto in lineage(heap, held):
        own = (row.entry for row in near.rows[: upto + 1])
        parts.append([entry for entry in own if entry.lane == "tree"])
        fork = near.state.header.fork
        if fork is not None and fork.scope == "path":
            parts.append(branch_in(heap, fork.leaf))
            break
    found = [entry for part in reversed(parts) for entry in part]
    return found if limit is None else found[max(len(found) - limit, 0) :]


def notes_in(heap: Heap, held: HeldStream, kinds: Sequence[str]) -> list[Entry]:
    """Return the side entries of `kinds` that the stream sees, in order."""
    parts: list[list[Entry]] = []
    for near, upto in lineage(heap, held):
        parts.append([note for note in own_notes(near, kinds) if note.seq <= upto])
    return [entry for part in reversed(parts) for entry in part]


def own_notes(held: HeldStream, kinds: Iterable[str]) -> list[Entry]:
    """Return the side entries of some `kinds` in the stream's own log, in order."""
    found = (note for kind in set(kinds) for note in held.notes.get(kind, ()))
    return sorted(found, key=lambda note: note.seq)


def open_in(held: HeldStream, kind: str) -> list[Entry]:
    """Return the entries of `kind` in the stream's own log that are still open, in order."""
    return unclosed((note for each in OPEN_KINDS for note in held.notes.get(each, ())), kind)


def resolve(heap: Heap, held: HeldStream, reference: str) -> EntryId:
    """Implement ``LogReader.resolve``.

    Raises: EntryNotFound.
    """
    entry = entry_in(heap, held, reference)
    if entry is not None:
        return entry.id
    exact = _foreign_ids(heap, held, lambda alias: alias == reference)
    if not exact:
        raise EntryNotFound(reference, held.state.header.id)
    return exact[reference]


def find_entry(heap: Heap, held: HeldStream, prefix: str) -> EntryId:
    """Implement ``LogReader.find_entry``.

    Raises: EntryNotFound, AmbiguousId.
    """
    stream = held.state.header.id
    for id_ in (prefix, f"{stream}/{prefix}"):
        entry = entry_in(heap, held, id_)
        if entry is not None:
            return entry.id
    near = _foreign_ids(heap, held, lambda alias: alias.startswith(prefix)) if prefix else {}
    return only_entry(prefix, near, stream)


def _foreign_ids(heap: Heap, held: HeldStream, fits: Callable[[str], bool]) -> dict[str, EntryId]:
    """Map foreign ids (ids of another program) to visible entries.

    A fork's own entries take precedence over entries of its origin.
    """
    found: dict[str, EntryId] = {}
    for near, _ in reversed(list(lineage(heap, held))):
        fitting = (pair for pair in near.aliases if fits(pair[0]))
        found.update(pair for pair in fitting if entry_in(heap, held, pair[1]) is not None)
    return found


# ---------------------------------------------------------------- checking


def problems_in(heap: Heap, held: HeldStream) -> list[Problem]:
    """Return every fault of a stream."""
    lost = [
        content_lost(row.entry, name)
        for row in held.rows
        for name in contents_shown(row.entry)
        if name not in heap.blobs
    ]
    fork = held.state.header.fork
    origin_hash = b""
    if fork is not None:
        origin = heap.streams[fork.stream]
        origin_hash = origin_hash_of(origin.genesis, origin.commits, fork.head)
    return lost + list(
        stream_problems(
            held.state,
            held.commits,
            held.rows,
            lambda id_: is_tree_entry(heap, held, id_),
            origin_hash=origin_hash,
            shared_messages=held.shared_messages,
            genesis=held.genesis,
        )
    )
