"""Erase single entries of a session, and entries with the same content, even if forks share them.

The functions are pure: they take the visible entries of the session and its forks, and return
ranges of seqs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from perdure.errors import EntryNotFound, InvalidEntry, SessionHasForks, TurnOpen
from perdure.session.codec import encode, new_side, readable
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import EntryId, StreamId, entry_id, entry_place
from perdure.session.info import listed_text
from perdure.session.kinds import ModelChange, ThinkingChange
from perdure.session.ledger import (
    Interrupted,
    LateOutcome,
    ToolFinished,
    ToolStarted,
    TurnRequested,
    TurnStarted,
)
from perdure.session.memory.kinds import FACT_TEXTS, EpisodeRecorded
from perdure.session.messages import Message, ToolCallPart, ToolResultPart
from perdure.session.notes import ImportSource, Label, Note, Question, Queued
from perdure.stores.protocol import StreamState
from perdure.stores.retention.cascade import Reach, StreamErasure, VisibleEntries, summaries_of
from perdure.stores.retention.erase import EraseRequest, in_ranges, seqs_in

CONTENT_NOTES = (
    Label.kind,
    Note.kind,
    Queued.kind,
    TurnRequested.kind,
    TurnStarted.kind,
    ToolStarted.kind,
    ToolFinished.kind,
    Question.kind,
    Interrupted.kind,
    LateOutcome.kind,
    ImportSource.kind,
    EpisodeRecorded.kind,
    *FACT_TEXTS,
)
"""Kinds of side entries that can be erased, or that can repeat the content of an entry."""

_ASKED_FOR = (Label.kind, Note.kind, Queued.kind, TurnRequested.kind, *FACT_TEXTS)
_NOTHING_SAID = (ModelChange.kind, ThinkingChange.kind)


def entry_erasures(
    request: EraseRequest, state: StreamState, reach: Reach, seen: Mapping[StreamId, VisibleEntries]
) -> list[StreamErasure]:
    """Return the erasures by `request` in the session at `state` and in its forks.

    `seen` contains the visible tree entries of the session and of the forks in `reach`, and the
    visible `CONTENT_NOTES` of the session. Summaries that cover an erased entry are erased too, as
    in an erasure of a session.
    Raises: EntryNotFound if an entry does not exist. The call raises InvalidEntry for an entry that
    cannot be erased alone, and TurnOpen while a turn is open. With the policy "refuse", the call
    raises SessionHasForks if forks share a requested entry. With the policy "keep", the call raises
    SessionHasForks if forks share all requested entries that are not erased yet.
    """
    stream = state.header.id
    if state.open_turn is not None:
        raise TurnOpen(stream, state.open_turn)
    own = {entry.seq: entry for entry in (*seen[stream].tree, *seen[stream].notes)}
    own = {seq: entry for seq, entry in own.items() if entry.stream == stream}
    asked = {_erasable(own.get(seq), seq, state).id for seq in request.entries}
    sharing = [fork for fork in reach.forks if any(entry.id in asked for entry in seen[fork].tree)]
    if sharing and request.forks == "refuse":
        raise SessionHasForks(stream, tuple(sorted(sharing)))
    kept: set[EntryId] = set()
    if request.forks == "keep":
        kept = {entry.id for fork in sharing for entry in seen[fork].tree if entry.id in asked}
    erased = asked - kept
    live = {entry.id for entry in own.values() if not entry.is_erased}
    if kept & live and not erased & live:
        raise SessionHasForks(stream, tuple(sorted(sharing)), is_all_shared=True)
    requested = len(erased & live)
    notes = [entry for entry in seen[stream].notes if entry.stream == stream]
    erased |= _same_content([entry for entry in own.values() if entry.id in erased], notes)
    trees = {id_: seen[id_].tree for id_ in (stream, *reach.forks)}
    erased |= summaries_of(erased, trees)
    told = [note for note in notes if _tells_of(note, erased)]
    erased |= {note.id for note in told}
    added = (*request.notes, *(new_side(_without_summary(note), note.about) for note in told))
    own_erasure, *of_forks = (
        _erasure_of(id_, erased, seen[id_].tree, state, (kept, sharing), notes=added)
        for id_ in trees
        if id_ == stream or any(entry.id in erased for entry in trees[id_])
    )
    return [msgspec.structs.replace(own_erasure, requested=requested), *of_forks]


def _tells_of(note: Entry, erased: set[EntryId]) -> bool:
    """Return whether `note` is an episode whose summary covers an erased entry."""
    body = readable(note)
    if not isinstance(body, EpisodeRecorded) or body.summary is None or note.about is None:
        return False
    last = entry_place(note.about)[1]
    return any(body.first <= seq <= last for seq in seqs_in(erased, note.stream))


def _without_summary(note: Entry) -> EpisodeRecorded:
    body = readable(note)
    assert isinstance(body, EpisodeRecorded)  # as in `_tells_of`
    return msgspec.structs.replace(body, summary=None)


def _erasable(entry: Entry | None, seq: int, state: StreamState) -> Entry:
    stream = state.header.id
    id_ = entry_id(stream, seq)
    if entry is None and not 0 <= seq <= state.head:
        raise EntryNotFound(id_, stream)
    is_side = entry is None or (entry.lane == "side" and entry.kind not in _ASKED_FOR)
    if entry is None or is_side:
        reason = f"{id_} is not part of the conversation, a note or a label"
        raise InvalidEntry(reason, told=f"{reason}: erase the message that it belongs to")
    if entry.kind in _NOTHING_SAID:
        reason = f"{id_} ({entry.kind}) holds no content that could be erased"
        raise InvalidEntry(reason, told=reason)
    return entry


def _erasure_of(
    stream: StreamId,
    erased: set[EntryId],
    tree: Sequence[Entry],
    state: StreamState,
    kept: tuple[set[EntryId], Sequence[StreamId]],
    *,
    notes: tuple[NewEntry, ...],
) -> StreamErasure:
    left = [entry for entry in tree if entry.id not in erased]
    is_target = stream == state.header.id
    staying = in_ranges(seqs_in(kept[0], stream)) if is_target else ()
    return StreamErasure(
        stream=stream,
        is_whole=False,
        erased=in_ranges(seqs_in(erased, stream)),
        kept=staying,
        kept_for=tuple(kept[1]) if staying else (),
        listed=listed_text(stream, left),
        notes=notes if is_target else (),
    )


def _same_content(erased: Sequence[Entry], notes: Sequence[Entry]) -> set[EntryId]:
    """Return the side entries that repeat the content of `erased` entries or refer to them."""
    ids, bodies = {entry.id for entry in erased}, {entry.body for entry in erased}
    turns = sorted(note.seq for note in notes if note.kind == TurnStarted.kind)
    calls = {
        (_turn_of(entry.seq, turns), call)
        for entry in erased
        for call in _calls_in(readable(entry))
    }
    said_in = {_turn_of(entry.seq, turns) for entry in erased if entry.lane == "tree"}
    found: set[EntryId] = set()
    for note in notes:
        body, turn = readable(note), _turn_of(note.seq, turns)
        is_same = note.about in ids and note.kind == Label.kind
        if isinstance(body, ToolStarted | ToolFinished):
            is_same = (turn, body.id) in calls
        elif isinstance(body, Question):
            is_same = (turn, body.call_id) in calls
        elif isinstance(body, Interrupted | LateOutcome):
            is_same = turn in said_in and turn >= 0
        elif isinstance(body, Queued):
            is_same = bytes(body.entry_body) in bodies
        elif isinstance(body, TurnRequested):
            is_same = encode(body.message) in bodies
        elif isinstance(body, ImportSource):
            is_same = bool(ids)  # the file contains its content
        if is_same:
            found.add(note.id)
    return found


def _turn_of(seq: int, turns: Sequence[int]) -> int:
    """Return the seq of the turn that contains `seq`; -1 before the first turn."""
    return max((start for start in turns if start <= seq), default=-1)


def _calls_in(body: object) -> set[str]:
    if not isinstance(body, Message):
        return set()
    calls = {part.id for part in body.parts if isinstance(part, ToolCallPart)}
    return calls | {part.call_id for part in body.parts if isinstance(part, ToolResultPart)}
