"""Erase data of a namespace in memory, in one uninterrupted step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from perdure.session.clock import RandomSource
from perdure.session.codec import encode
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_place
from perdure.session.info import redact
from perdure.session.memory.kinds import FACT_KINDS
from perdure.session.notes import KEPT_WHEN_ERASED
from perdure.stores.in_memory.append import append
from perdure.stores.in_memory.streams import Heap, HeldStream, held_in, notes_in, own_notes, tree_in
from perdure.stores.protocol import EMPTY, Commit
from perdure.stores.retention import copies
from perdure.stores.retention.cascade import StreamErasure, VisibleEntries
from perdure.stores.retention.erase import (
    Certificate,
    Counts,
    ErasedSession,
    EraseRequest,
    Relation,
    how_related,
)
from perdure.stores.retention.erasure_plan import erasures, planned, reach_among, roots_among
from perdure.stores.retention.facts import fact_erasures
from perdure.stores.validation import names_in
from perdure.stores.verification import StoredEntry

BACKEND = "memory"


def erase(
    heap: Heap,
    namespace: str,
    request: EraseRequest,
    earlier: list[Certificate],
    random: RandomSource,
) -> Certificate:
    """Implement ``RetentionService.erase``; append the certificate to `earlier`."""
    roots = _roots(heap, request)
    if request.is_of_session:
        request.require_head(heap.streams[roots[0]].state)
    relations = _relations(heap)
    reach = reach_among(request, roots, relations)
    states = {stream: heap.streams[stream].state for stream in reach.targets}
    steps = erasures(request, reach, relations, states)
    found = planned(steps, lambda stream, notes: _visible_entries(heap, stream, notes))
    takes = [each for each in found if _is_worth_it(heap, each)]
    if not takes and request.is_of_session and (done := request.answered_by(earlier)):
        return done
    facts = [note for held in heap.streams.values() for note in own_notes(held, FACT_KINDS)]
    takes += fact_erasures(takes, facts)
    told = (own_notes(heap.streams[each.stream], copies.TELLING) for each in takes)
    outside = [copy for notes in told for copy in copies.outside(notes)]
    bodies: list[bytes] = []
    sessions, counts = _erase_streams(heap, takes, request, random, bodies)
    contents = without_contents(heap, bodies)
    certificate = request.certificate(
        BACKEND,
        namespace,
        sessions=sessions,
        removed=counts.plus(contents=len(contents), content_bytes=sum(contents)),
        copies=(*copies.fork_copies(sessions, reach.copies), *outside),
        is_complete=True,
    )
    earlier.append(copies.without_file_names(certificate))
    return certificate


def _roots(heap: Heap, request: EraseRequest) -> list[StreamId]:
    if request.is_of_session:
        return [held_in(heap, StreamId(request.name or "")).state.header.id]
    states = (held.state for held in heap.streams.values())
    return roots_among(request, ((each.header, each.info.status == "erased") for each in states))


def _relations(heap: Heap) -> list[Relation]:
    found: list[Relation] = []
    for held in heap.streams.values():
        header, info = held.state.header, held.state.info
        if info.parent is not None:
            fork = header.fork
            how = how_related(is_fork=fork is not None, origin=header.origin)
            head, is_path = (EMPTY, False) if fork is None else (fork.head, fork.scope == "path")
            is_erased = info.status == "erased"
            found.append(Relation(header.id, info.parent, how, is_erased, head, is_path))
    return found


def _visible_entries(heap: Heap, stream: StreamId, notes: Sequence[str]) -> VisibleEntries:
    held = heap.streams[stream]
    return VisibleEntries(tree_in(heap, held), notes_in(heap, held, notes))


def _is_worth_it(heap: Heap, taking: StreamErasure) -> bool:
    held = heap.streams[taking.stream]
    is_new = taking.is_whole and held.state.info.status != "erased"
    is_new = is_new or taking.changes_list(held.state)
    return is_new or any(_is_left(row) for row in _rows(held, taking))


def _rows(held: HeldStream, taking: StreamErasure) -> Iterator[StoredEntry]:
    for first, last in taking.erased:
        yield from held.rows[first : last + 1]


def _is_left(row: StoredEntry) -> bool:
    return row.salt is not None and row.entry.kind not in KEPT_WHEN_ERASED


def _erase_streams(
    heap: Heap,
    takes: list[StreamErasure],
    request: EraseRequest,
    random: RandomSource,
    bodies: list[bytes],
) -> tuple[tuple[ErasedSession, ...], Counts]:
    """Remove the data of the erasures in `takes` from memory, and return what was removed.

    The erased bodies are added to the list `bodies`.
    """
    before = {each.stream: heap.streams[each.stream].state for each in takes}
    if takes:
        writes = tuple(each.write(request) for each in takes)
        append(heap, Commit(writes=writes, at=request.at), random)
    sessions: list[ErasedSession] = []
    counts = Counts()
    for each in takes:
        held = heap.streams[each.stream]
        gone = [row.entry.body for row in _rows(held, each) if _is_left(row)]
        counts = counts.plus(foreign_ids=_forget_names(held, each))
        _empty(heap, held, each)
        if each.is_whole:
            counts = counts.plus(partial_answers=held.partial is not None)
            counts = counts.plus(idempotency_keys=forget_keys_of(heap, each.stream))
            bodies.append(encode(held.state.header))
            _close(held)
        bodies += gone
        size = sum(map(len, gone))
        state, chain = before[each.stream], held.state.hash
        sessions.append(each.erased_session(state, chain, entries=len(gone), body_bytes=size))
    return tuple(sessions), counts


def _empty(heap: Heap, held: HeldStream, taking: StreamErasure) -> None:
    emptied: dict[int, Entry] = {}
    for row in list(_rows(held, taking)):
        if _is_left(row):
            entry = msgspec.structs.replace(row.entry, body=b"")
            held.rows[entry.seq] = StoredEntry(entry, None, row.digest)
            emptied[entry.seq] = entry
    for kind, notes in held.notes.items():
        held.notes[kind] = [note for note in notes if note.seq not in emptied]
    for index, entry in enumerate(heap.log):
        if entry is not None and entry.stream == taking.stream and entry.seq in emptied:
            heap.log[index] = emptied[entry.seq]
            heap.vectors.discard(index + 1)


def _forget_names(held: HeldStream, taking: StreamErasure) -> int:
    def is_kept(seq: int) -> bool:
        return not any(first <= seq <= last for first, last in taking.erased)

    staying = [pair for pair in held.aliases if is_kept(entry_place(pair[1])[1])]
    count = len(held.aliases) - len(staying)
    held.aliases = staying
    return count


def forget_keys_of(heap: Heap, stream: StreamId) -> int:
    """Delete the idempotency keys of commits to `stream`; return the number of deleted keys."""
    keys = [
        key
        for key, kept in heap.keys.items()
        if any(entry.stream == stream for entries in kept.committed.entries for entry in entries)
    ]
    for key in keys:
        del heap.keys[key]
    return len(keys)


def _close(held: HeldStream) -> None:
    held.partial = None
    held.owner, held.until = "", 0
    state = held.state
    held.state = msgspec.structs.replace(state, header=redact(state.header), epoch=state.epoch + 1)


def without_contents(heap: Heap, bodies: list[bytes]) -> list[int]:
    """Remove the contents that only the erased `bodies` referenced; return the contents' sizes."""
    named = names_in(bodies) & heap.blobs.keys()
    if named:
        named -= names_in(_texts(heap))
    return [len(heap.blobs.pop(name)) for name in sorted(named)]


def _texts(heap: Heap) -> Iterator[bytes]:
    for held in heap.streams.values():
        yield encode(held.state.header)
        yield from (row.entry.body for row in held.rows)
        if held.partial is not None:
            yield held.partial[1]
