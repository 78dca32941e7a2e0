"""Erase from a heap in one uninterrupted step."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from perdure.session.clock import RandomSource
from perdure.session.codec import ENTRY_NOTES, encode
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, entry_place
from perdure.session.info import redact
from perdure.session.memory.kinds import FACT_KINDS
from perdure.session.notes import KEPT_WHEN_ERASED
from perdure.stores.in_memory.append import append
from perdure.stores.in_memory.streams import Heap, HeldStream, held_in, notes_in, tree_in
from perdure.stores.protocol import EMPTY, Commit
from perdure.stores.retention import copies
from perdure.stores.retention.cascade import (
    Reach,
    StreamErasure,
    VisibleEntries,
    reach_of,
    streams_to_read,
    takings,
)
from perdure.stores.retention.entries import CONTENT_NOTES, entry_erasures, reach_of_entries
from perdure.stores.retention.erase import (
    Certificate,
    Counts,
    ErasedSession,
    EraseRequest,
    Relation,
    how_related,
)
from perdure.stores.retention.facts import fact_erasures
from perdure.stores.verification import StoredEntry

BACKEND = "memory"

_NAME = re.compile(rb"sha256-[0-9a-f]{64}")


def erase(
    heap: Heap,
    namespace: str,
    request: EraseRequest,
    earlier: list[Certificate],
    random: RandomSource,
) -> Certificate:
    """Implement ``RetentionService.erase``; appends to `earlier`, the certificates so far."""
    relations, roots = _relations(heap), _roots(heap, request)
    if request.is_of_session:
        request.require_head(heap.streams[roots[0]].state)
    if request.scope == "entries":
        reach = reach_of_entries(roots[0], relations)
        found = _entry_erasures(heap, request, reach)
    else:
        reach = reach_of(roots, relations, request.fork_policy)
        found = _takings(heap, reach, relations)
    takes = [each for each in found if _is_worth_it(heap, each)]
    if not takes and request.is_of_session and (done := request.answered_by(earlier)):
        return done
    facts = [note for held in heap.streams.values() for note in _own(held, FACT_KINDS)]
    takes += fact_erasures(takes, facts)
    outside = [copy for each in takes for copy in copies.outside(_notes(heap, each))]
    bodies: list[bytes] = []
    sessions = _erase_streams(heap, takes, request, random, bodies)
    certificate = Certificate(
        id=request.id,
        backend=BACKEND,
        namespace=namespace,
        scope=request.scope,
        by=request.by,
        at=request.at,
        finished_at=request.at,
        is_complete=True,
        sessions=sessions[0],
        removed=_with_contents(sessions[1], without_contents(heap, bodies)),
        copies=(*copies.fork_copies(reach.forks, reach.copies), *outside),
    )
    earlier.append(copies.without_file_names(certificate))
    return certificate


def _roots(heap: Heap, request: EraseRequest) -> list[StreamId]:
    if request.is_of_session:
        return [held_in(heap, StreamId(request.name or "")).state.header.id]
    headers = [held.state.header for held in heap.streams.values()]
    if request.scope == "subject":
        headers = [header for header in headers if header.subject == request.name]
    return [header.id for header in headers]


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


def _takings(heap: Heap, reach: Reach, relations: list[Relation]) -> list[StreamErasure]:
    heads = {id_: heap.streams[id_].state.head for id_ in reach.targets}
    seen = {id_: _visible_entries(heap, id_) for id_ in streams_to_read(reach, relations)}
    found = takings(reach, heads, relations, seen)
    if found is None:
        seen = {id_: _visible_entries(heap, id_) for id_ in (*reach.targets, *reach.forks)}
        found = takings(reach, heads, relations, seen)
    return found or []


def _entry_erasures(heap: Heap, request: EraseRequest, reach: Reach) -> list[StreamErasure]:
    (stream,) = reach.targets
    seen = {id_: _visible_entries(heap, id_) for id_ in reach.forks}
    held = heap.streams[stream]
    seen[stream] = VisibleEntries(tree_in(heap, held), notes_in(heap, held, CONTENT_NOTES))
    return entry_erasures(request, held.state, reach, seen)


def _visible_entries(heap: Heap, stream: StreamId) -> VisibleEntries:
    held = heap.streams[stream]
    return VisibleEntries(tree_in(heap, held), notes_in(heap, held, ENTRY_NOTES))


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


def _notes(heap: Heap, taking: StreamErasure) -> list[Entry]:
    return _own(heap.streams[taking.stream], copies.TELLING)


def _own(held: HeldStream, kinds: Sequence[str]) -> list[Entry]:
    found = (note for kind in kinds for note in held.notes.get(kind, ()))
    return sorted(found, key=lambda note: note.seq)


def _erase_streams(
    heap: Heap,
    takes: list[StreamErasure],
    request: EraseRequest,
    random: RandomSource,
    bodies: list[bytes],
) -> tuple[tuple[ErasedSession, ...], Counts]:
    """Remove everything from the heap and return what was erased. Adds the bodies to `bodies`."""
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


def _forget_names(held: HeldStream, taking: StreamErasure) -> int:
    def is_kept(seq: int) -> bool:
        return not any(first <= seq <= last for first, last in taking.erased)

    staying = [pair for pair in held.aliases if is_kept(entry_place(pair[1])[1])]
    count = len(held.aliases) - len(staying)
    held.aliases = staying
    return count


def forget_keys_of(heap: Heap, stream: StreamId) -> int:
    """Delete the idempotency keys of commits to `stream`; return their number."""
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


def _with_contents(counts: Counts, sizes: list[int]) -> Counts:
    return counts.plus(contents=len(sizes), content_bytes=sum(sizes))


def without_contents(heap: Heap, bodies: list[bytes]) -> list[int]:
    """Remove the contents that only the erased `bodies` referenced; return their sizes."""
    named = {name.decode() for body in bodies for name in _NAME.findall(body)} & heap.blobs.keys()
    if named:
        for text in _texts(heap):
            named -= {name.decode() for name in _NAME.findall(text)}
    return [len(heap.blobs.pop(name)) for name in sorted(named)]


def _texts(heap: Heap) -> Iterator[bytes]:
    for held in heap.streams.values():
        yield encode(held.state.header)
        yield from (row.entry.body for row in held.rows)
        if held.partial is not None:
            yield held.partial[1]
