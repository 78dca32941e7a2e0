"""Find sessions, flows, questions and entries by an id, or by the beginning of an id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perdure.client.reads import OpenQuestion
from perdure.errors import (
    AmbiguousId,
    EntryNotFound,
    FlowNotFound,
    QuestionNotFound,
    SessionNotFound,
)
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowImported, FlowStarted
from perdure.session.ids import EntryId, StreamId, entry_place, place_of
from perdure.stores.protocol import StreamState
from perdure.stores.session_store import SessionStore, is_erased


async def find_stream(store: SessionStore, prefix: str) -> StreamId:
    """Return the session or flow `prefix`, or the only one whose id begins with `prefix`.

    Raises: SessionNotFound, AmbiguousId.
    """
    try:
        return await store.find(prefix)
    except AmbiguousId as error:
        known = [StreamId(each) for each in error.candidates]
        living = [each for each in known if not await is_erased(store, each)]
        if len(living) == 1:
            return living[0]
        raise AmbiguousId(prefix, tuple(living or known)) from None


async def state_of(store: SessionStore, id: StreamId) -> StreamState:
    """Return the state of the stream `id`.

    Raises: SessionNotFound; its message says if `id` is only the beginning of an id.
    """
    try:
        return await store.state(id)
    except SessionNotFound:
        if not await _is_prefix(store, id):
            raise
    raise SessionNotFound(id, is_prefix=True)


async def _is_prefix(store: SessionStore, id: str) -> bool:
    try:
        await store.find(id)
    except AmbiguousId:
        return True
    except SessionNotFound:
        return False
    return True


async def find_entry(store: SessionStore, reference: str) -> Entry:
    """Return the entry whose complete id or alias is `reference`.

    Raises: EntryNotFound, AmbiguousId.
    """
    try:
        return await store.entry(entry_place(reference)[0], EntryId(reference))
    except (ValueError, SessionNotFound, EntryNotFound):
        found = await store.entries_named(reference)
    if not found:
        raise EntryNotFound(reference, None)
    if len(found) > 1:
        raise AmbiguousId(reference, tuple(sorted(found)))
    return await store.entry(entry_place(found[0])[0], found[0])


async def find_flow(store: SessionStore, prefix: str) -> StreamId:
    """Return the flow with the id `prefix`, or the only flow whose id begins with `prefix`.

    Raises: FlowNotFound, AmbiguousId.
    """
    notes = await store.notes_of_all((FlowStarted.kind, FlowImported.kind))
    found = find_id(prefix, {note.stream for note in notes})
    if found is None:
        raise FlowNotFound(prefix)
    return StreamId(found)


def find_question(prefix: str, questions: Sequence[OpenQuestion]) -> EntryId:
    """Return the open question with the id `prefix`, or the only one whose id begins with `prefix`.

    A number after a slash must be complete, so ``trip/1`` does not match ``trip/17``.
    Raises: QuestionNotFound, AmbiguousId.
    """
    stream, slash, number = prefix.rpartition("/")
    ids = {question.id for question in questions}
    if slash and prefix not in ids:
        ids = {id for id in ids if id.rpartition("/")[2].partition(":")[0] == number}
        found = find_id(stream, ids)
    else:
        found = find_id(prefix, ids)
    if found is None:
        raise QuestionNotFound(prefix)
    return EntryId(found)


def stream_asking(question: str) -> StreamId | None:
    """Return the stream in the entry id `question`; None if `question` is not a complete id."""
    head, _, rest = question.rpartition("/")
    place = place_of(f"{head}/{rest.partition(':')[0]}")
    return None if place is None else place[0]


def find_id(prefix: str, ids: Iterable[str]) -> str | None:
    """Return the id that equals `prefix`, or the only id that begins with `prefix`.

    Raises: AmbiguousId.
    """
    candidates = sorted(id for id in ids if prefix and id.startswith(prefix))
    if prefix in candidates:
        return prefix
    if len(candidates) > 1:
        raise AmbiguousId(prefix, tuple(candidates))
    return candidates[0] if candidates else None
