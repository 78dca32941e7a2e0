"""Apply a commit to the data of a namespace in memory, in one step without awaits.

Either all writes of the commit are applied, or none. A planned write takes effect immediately, so
that later writes of the same commit see it. For example, a commit can write to a stream and also
fork it. If a later write is rejected, all writes of the commit are rolled back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from perdure.errors import IdempotencyMismatch, LeaseHeld, SessionExists
from perdure.session.clock import RandomSource
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.kinds import Compaction, ModelChange, ThinkingChange
from perdure.session.ledger import TurnFinished, TurnStarted
from perdure.session.messages import MESSAGE
from perdure.stores.access.lease_term import is_running, lease_end
from perdure.stores.append_rules import (
    Admission,
    ForkOrigin,
    check_commit,
    check_origin,
    initial_state,
    plan_append,
    state_after,
)
from perdure.stores.chain import (
    SALT_BYTES,
    commit_hash,
    fingerprint,
    genesis_hash,
    header_line,
)
from perdure.stores.in_memory.streams import (
    Heap,
    HeldStream,
    KeptCommit,
    Node,
    held_in,
    is_tree_entry,
)
from perdure.stores.protocol import Commit, CommitResult, Lease, LeaseRequest, Write
from perdure.stores.verification import StoredCommit, StoredEntry, origin_hash_of, sealed

Undo = list[Callable[[], object]]

_ABOVE_ROOT = Node(-1, 0, None, None, None)


Check = Callable[[Sequence[Sequence[Entry]]], None]
"""A function that raises an error if the entries of the whole commit are not allowed."""


def append(
    heap: Heap,
    commit: Commit,
    random: RandomSource,
    check: Check = lambda _: None,
    now: int = 0,
) -> CommitResult:
    """Append `commit` with the guarantees of ``SessionStore.commit``; an error changes nothing.

    `check` is called last, with the entries of all writes.
    Units: `now` is Unix milliseconds.
    """
    check_commit(commit)
    key = commit.idempotency_key
    asked = b"" if key is None else fingerprint(commit)
    if key is not None and key in heap.keys:
        return _replay(heap, key, asked)
    committed = _all_or_none(heap, commit, random, check, now)
    heap.log.extend(entry for entries in committed.entries for entry in entries)
    for content in commit.blobs:
        heap.blobs.setdefault(blob_hash(content), content)
    if key is not None:
        heap.keys[key] = KeptCommit(asked, committed, commit.at)
    return committed


def _replay(heap: Heap, key: str, asked: bytes) -> CommitResult:
    kept = heap.keys[key]
    if kept.asked != asked:
        raise IdempotencyMismatch(key)
    return msgspec.structs.replace(kept.committed, is_replay=True)


def _all_or_none(
    heap: Heap, commit: Commit, random: RandomSource, check: Check, now: int
) -> CommitResult:
    undo: Undo = []
    leases: list[Lease] = []
    try:
        entries: list[tuple[Entry, ...]] = []
        for write in commit.writes:
            held = _written_to(heap, write, undo)
            if write.taking is not None:
                leases.append(lead(held, write.stream, write.taking, now))
                write = msgspec.structs.replace(write, lease=leases[-1])  # noqa: PLW2901 - led now
            entries.append(_append_to_one(heap, held, write, commit.at, random))
        check(entries)
        return CommitResult(tuple(entries), leases=tuple(leases))
    except BaseException:
        for step in reversed(undo):
            step()
        raise


def _written_to(heap: Heap, write: Write, undo: Undo) -> HeldStream:
    """Return the stream that `write` appends to, after adding its rollback to `undo`."""
    if write.create is not None:
        if write.create.fork is not None:
            check_origin(held_in(heap, write.create.fork.stream).state)
        held = heap.streams[write.stream] = create_stream(heap, write.create)
        held.state = msgspec.structs.replace(held.state, epoch=write.above_epoch)
        undo.append(lambda: heap.streams.pop(write.stream))
    held = held_in(heap, write.stream)
    undo.append(_way_back(heap, held))
    return held


def _append_to_one(
    heap: Heap, held: HeldStream, write: Write, at: int, random: RandomSource
) -> tuple[Entry, ...]:
    admission = plan_append(held.state, write, at, lambda id_: is_tree_entry(heap, held, id_))
    if admission.entries:
        _extend(heap, held, admission, at, random)
    if write.is_releasing:
        held.until = 0
    return admission.entries


def lead(held: HeldStream, stream: StreamId, wanted: LeaseRequest, now: int) -> Lease:
    """Give the lease of the stream `held`, with the next epoch, to the owner in `wanted`.

    Raises: LeaseHeld.
    """
    if is_running(held.until, now) and held.owner != wanted.dead_owner:
        raise LeaseHeld(stream, held.owner, held.until)
    epoch = held.state.epoch + 1
    held.state = msgspec.structs.replace(held.state, epoch=epoch)
    held.owner, held.until = wanted.owner, lease_end(now, wanted.ttl_ms)
    return Lease(stream, held.owner, epoch, held.until)


def _way_back(heap: Heap, held: HeldStream) -> Callable[[], None]:
    """Return a function that restores the stream `held` to its current state."""
    state, partial, leader = held.state, held.partial, (held.owner, held.until)
    commits, aliases = len(held.commits), len(held.aliases)

    def restore() -> None:
        for row in reversed(held.rows[state.head + 1 :]):
            _forget(heap, held, row.entry)
        del held.rows[state.head + 1 :], held.commits[commits:], held.aliases[aliases:]
        held.state, held.partial = state, partial
        held.owner, held.until = leader

    return restore


def create_stream(heap: Heap, header: StreamHeader) -> HeldStream:
    """Return a new, empty stream that is not in `heap` yet.

    Raises: SessionExists if the stream exists. For a fork, the call raises SessionNotFound,
    InvalidEntry or InvalidParent if the fork point does not exist.
    """
    if header.id in heap.streams:
        raise SessionExists(header.id)
    if header.fork is None:
        genesis = genesis_hash(header)
        return HeldStream(initial_state(header, genesis), genesis)
    origin = held_in(heap, header.fork.stream)
    shared = ForkOrigin(
        info=origin.state.info,
        head=origin.state.head,
        hash=origin_hash_of(origin.genesis, origin.commits, header.fork.head),
        messages=_shared_messages(heap, origin, header.fork),
    )
    genesis = genesis_hash(header, shared.hash)
    state = initial_state(header, genesis, shared, lambda id_: is_tree_entry(heap, origin, id_))
    return HeldStream(state, genesis, shared.messages)


def _shared_messages(heap: Heap, origin: HeldStream, fork: ForkPoint) -> int:
    if fork.scope == "path":
        node = heap.nodes.get(fork.leaf) if fork.leaf else None
        return node.messages if node else 0
    if fork.head == origin.state.head:
        return origin.state.info.messages
    own = origin.rows[: fork.head + 1]
    return origin.shared_messages + sum(row.entry.kind == MESSAGE for row in own)


def _extend(
    heap: Heap, held: HeldStream, admission: Admission, at: int, random: RandomSource
) -> None:
    rows = [sealed(entry, random(SALT_BYTES)) for entry in admission.entries]
    lines = (header_line(row.entry, row.digest) for row in rows)
    chain = commit_hash(held.state.hash, at, admission.epoch, lines)
    write_admission(heap, held, admission, rows, at=at, chain=chain)


def write_admission(
    heap: Heap,
    held: HeldStream,
    admission: Admission,
    rows: Sequence[StoredEntry],
    *,
    at: int,
    chain: bytes,
) -> None:
    """Store the planned entries as `rows`; `chain` is the stream's chain hash after them."""
    first = admission.entries[0].seq
    held.commits.append(StoredCommit(first, len(rows), at, admission.epoch, chain))
    held.rows.extend(rows)
    held.aliases.extend(admission.aliases)
    held.state = state_after(held.state, admission, chain)
    for entry in admission.entries:
        _index(heap, held, entry)


def _index(heap: Heap, held: HeldStream, entry: Entry) -> None:
    if entry.lane == "tree":
        parent = _ABOVE_ROOT if entry.parent_id is None else heap.nodes[entry.parent_id]
        heap.nodes[entry.id] = _node_of(entry, parent)
        return
    held.notes.setdefault(entry.kind, []).append(entry)
    if entry.kind in (TurnStarted.kind, TurnFinished.kind):
        held.partial = None


def _forget(heap: Heap, held: HeldStream, entry: Entry) -> None:
    if entry.lane == "tree":
        del heap.nodes[entry.id]
    else:
        held.notes[entry.kind].pop()


def _node_of(entry: Entry, parent: Node) -> Node:
    own = entry.id
    return Node(
        depth=parent.depth + 1,
        messages=parent.messages + (entry.kind == MESSAGE),
        compaction=own if entry.kind == Compaction.kind else parent.compaction,
        model_change=own if entry.kind == ModelChange.kind else parent.model_change,
        thinking_change=own if entry.kind == ThinkingChange.kind else parent.thinking_change,
    )
