"""Erase sessions, entries, facts and namespaces; each erasure records its requester and time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from perdure.client.amounts import amount
from perdure.client.clock import Outside
from perdure.client.conversation.scratch import without_scratch
from perdure.client.processes import this_process
from perdure.errors import InvalidEntry, SessionExists, SessionNotFound, Unsupported
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId, entry_place
from perdure.session.info import StreamHeader
from perdure.stores.protocol import EMPTY, Commit, StreamState, Write
from perdure.stores.retention.erase import Certificate, EraseRequest, EraseScope, ForkPolicy
from perdure.stores.session_store import SessionStore, exists, is_erased


async def free_id(backend: SessionStore, stream: StreamId, *, is_reused: bool) -> int:
    """Free the id `stream` of an erased session if `is_reused`; otherwise the id remains taken.

    Returns the epoch of the erased session's leases, or 0 if no id was freed.
    Raises: SessionExists if the session was erased, `is_reused` is False, and the store cannot
    erase. A store that can erase raises SessionExists itself when the session is created.
    """
    if is_reused:
        with suppress(SessionNotFound):
            state = await backend.state(stream)
            await backend.retention.remove(stream, is_erased=True)
            return state.epoch
    elif not backend.capabilities.erase and await is_erased(backend, stream):
        raise SessionExists(stream, is_erased=True)
    return 0


async def existing_or_created(
    backend: SessionStore, header: StreamHeader, entries: tuple[NewEntry, ...] = ()
) -> StreamHeader:
    """Return the header of the stream with the id of `header`; create the stream if there is none.

    A new stream begins with `entries`. The id of an erased stream can be used again.
    """
    above = 0
    with suppress(SessionNotFound):
        state = await backend.state(header.id)
        if state.info.status != "erased":
            return state.header
        above = max(await free_id(backend, header.id, is_reused=True), header.created_at)
    write = Write(stream=header.id, create=header, entries=entries, above_epoch=above)
    with suppress(SessionExists):  # another process was first
        await backend.commit(Commit(writes=(write,), at=header.created_at))
    return header


async def free_flow_ids(
    backend: SessionStore, flow: StreamId, sessions: Iterable[StreamId], *, is_reused: bool
) -> dict[StreamId, int] | None:
    """If `is_reused`, free the ids of the erased flow `flow` and of its erased sessions.

    `sessions` are the ids that the new flow needs in addition to its own id.
    Shape: a dict with the lease epoch of each freed id. The result is None if an id belongs to an
    erased session or flow and `is_reused` is False.
    Raises: SessionExists if one of the ids cannot be used. If SessionExists is raised, no id is
    freed.
    """
    erased: list[StreamId] = []
    needed = {*sessions, *await _erased_sessions(backend, flow)}
    for stream in (flow, *sorted(needed)):
        if await is_erased(backend, stream):
            erased.append(stream)
        elif await exists(backend, stream):
            raise SessionExists(stream)
    if not is_reused:
        return None if erased else {}
    for stream in erased:
        await _require_own(backend, stream, flow)
        with suppress(SessionNotFound):
            if await backend.retention.holder(stream) is not None:  # for example a fork
                raise SessionExists(stream, is_erased=True)
    # The flow comes last: a killed call can be repeated.
    return {each: await free_id(backend, each, is_reused=True) for each in reversed(erased)}


async def _erased_sessions(backend: SessionStore, flow: StreamId) -> set[StreamId]:
    """Return the erased sessions of the roles and selectors of `flow`.

    The header of each session is read, because an id that begins with the flow's id, such as
    ``flow__x``, can belong to another flow.
    """
    erasures = await backend.retention.erasures()
    whole = {each.session for done in erasures for each in done.sessions}
    found: set[StreamId] = set()
    for stream in whole:
        with suppress(SessionNotFound):
            header = (await backend.state(stream)).header
            if header.origin == "role" and header.parent == flow and header.fork is None:
                found.add(stream)
    return found


async def _require_own(backend: SessionStore, stream: StreamId, flow: StreamId) -> None:
    """Raises: SessionExists if the erased `stream` is neither `flow` nor a session of its roles."""
    with suppress(SessionNotFound):
        header = (await backend.state(stream)).header
        is_of_role = header.origin == "role" and header.parent == flow
        if not (header.kind == "flow" if stream == flow else is_of_role):
            raise SessionExists(stream, is_erased=True)


async def session_exists_error(backend: SessionStore, stream: StreamId) -> SessionExists:
    """Return the error for an id that is taken; its message states if the session was erased."""
    with suppress(SessionNotFound):
        state = await backend.state(stream)
        return SessionExists(stream, is_erased=state.info.status == "erased")
    return SessionExists(stream)


async def erase_session(
    backend: SessionStore,
    outside: Outside,
    session: StreamId,
    *,
    forks: ForkPolicy,
    by: str | None,
    expected_head: int | None = None,
) -> Certificate:
    """Erase one session.

    Raises: the errors of ``RetentionService.erase``, such as SessionHasForks; Unsupported if the
    store cannot erase.
    """
    amount("expected_head", expected_head, least=EMPTY)
    asked = _request(outside, "session", session, by, forks=forks, expected_head=expected_head)
    return await without_scratch(backend, await backend.retention.erase(asked))


async def erase_entries(
    backend: SessionStore,
    outside: Outside,
    session: StreamId,
    entries: Sequence[EntryId],
    *,
    forks: ForkPolicy,
    by: str | None,
) -> Certificate:
    """Erase entries of `session`.

    Raises: the errors of ``RetentionService.erase``; Unsupported if the store cannot erase single
    entries.
    """
    for entry in entries:
        if entry_place(entry)[0] != session:
            reason = f"{entry} is shared with another session: erase it there"
            raise InvalidEntry(reason, told=reason)
    if not backend.capabilities.erase:
        raise Unsupported("erasing single entries", backend.address.partition(":")[0])
    seqs = tuple(sorted({entry_place(entry)[1] for entry in entries}))
    asked = _request(outside, "entries", session, by, forks=forks, entries=seqs)
    return await backend.retention.erase(asked)


async def erase_fact(
    backend: SessionStore,
    outside: Outside,
    state: StreamState,
    entries: Sequence[int],
    notes: tuple[NewEntry, ...],
    *,
    by: str | None,
) -> Certificate:
    """Atomically erase `entries` of the memory stream with the state `state`, and append `notes`.

    Raises: HeadConflict if the head of the stream changed.
    """
    about = {"entries": tuple(entries), "expected_head": state.head, "notes": notes}
    asked = _request(outside, "entries", state.header.id, by, **about)
    return await backend.retention.erase(asked)


async def erase_subject(
    backend: SessionStore, outside: Outside, subject: str, by: str | None
) -> Certificate:
    """Erase all sessions of `subject`, their forks, and the sessions of agents invoked in them."""
    asked = _request(outside, "subject", subject, by)
    certificate = await without_scratch(backend, await backend.retention.erase(asked))
    return msgspec.structs.replace(certificate, subject=subject)


async def erase_namespace(backend: SessionStore, outside: Outside, by: str | None) -> Certificate:
    """Erase every session of the namespace."""
    asked = _request(outside, "namespace", None, by)
    return await without_scratch(backend, await backend.retention.erase(asked))


def _request(
    outside: Outside, scope: EraseScope, name: str | None, by: str | None, **details: Any
) -> EraseRequest:
    id, at = outside.stream_id(None), outside.clock.now_ms()
    return EraseRequest(id=id, scope=scope, name=name, by=by or this_process(), at=at, **details)
