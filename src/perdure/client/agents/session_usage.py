"""Usage, grants and idle time of a session."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import TYPE_CHECKING

from perdure.bounds.short_repr import ShortRepr
from perdure.client.conversation.authority import authority_of, carried_in_force
from perdure.client.records.sessions import newest_sessions
from perdure.client.store import Store
from perdure.errors import HeadConflict, SessionNotFound
from perdure.session.argument_checks import takes_declared
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.ids import StreamId
from perdure.session.info import can_end_as_idle
from perdure.session.ledger import Spending, TurnRequested
from perdure.session.notes import Answer, GrantRevoked, Question, SessionEnded, SideBody
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import StreamState
from perdure.stores.session_store import append_to

if TYPE_CHECKING:
    from perdure.client.conversation import abandonment
    from perdure.engine import episodes
    from perdure.engine.turns import environment as environments
else:
    abandonment = Later("perdure.client.conversation.abandonment")
    episodes = Later("perdure.engine.episodes")
    environments = Later("perdure.engine.turns.environment")


class SessionUsage(ShortRepr, frozen=True):
    """What a session has spent, its grants, and the providers that it does not call for now.

    `grants` are the calls that a person approved with "always": they need no further approval.
    `parked` maps each paused provider to the time until which the session does not call it.
    Units: money in micro-cents, times in Unix milliseconds.
    """

    spent: Spending
    grants: tuple[str, ...]
    limit_microcents: int | None
    parked: dict[str, int]


@takes_declared
async def standing_of(store: Store, session: str) -> SessionUsage:
    """Return the usage of `session`; the usage of a fork does not include the usage of its origin.

    The grants of a turn that was imported, or that is not trusted on this machine, are omitted.
    Raises: SessionNotFound.
    """
    stream = StreamId(session)
    so_far, is_in_force = await carried_in_force(store.backend, stream)
    return SessionUsage(
        so_far.spent,
        tuple(sorted(so_far.granted)) if is_in_force else (),
        so_far.limit_microcents if is_in_force else None,
        dict(so_far.parked),
    )


async def grants_by_session(store: Store) -> dict[str, tuple[str, ...]]:
    """Return the grants of each session with grants, newest activity first."""
    found: dict[str, tuple[str, ...]] = {}
    answered = {answer.stream for answer in await store.backend.notes_of_all((Answer.kind,))}
    async for info in newest_sessions(store.backend):
        if info.id not in answered:  # each grant is an answer, and reading a log takes longer
            continue
        with suppress(SessionNotFound):  # erased meanwhile
            found[info.id] = (await standing_of(store, info.id)).grants
    return {id: grants for id, grants in found.items() if grants}


@takes_declared
async def revoke(store: Store, session: str, grant: str | None = None) -> Entry:
    """Revoke `grant` (None: all grants); the calls that it allowed need approval again.

    Raises: SessionNotFound.
    """
    stream = (await store.backend.state(StreamId(session))).header.id
    at = store.outside.clock.now_ms()
    return (await append_to(store.backend, stream, new_side(GrantRevoked(grant)), at=at))[0]


async def end_if_idle(store: Store, state: StreamState, timeout_s: float | None) -> bool:
    """Close the session if nothing happened in it for `timeout_s`; return whether it was closed.

    A session with an open turn (even one that waits for an answer) or with a scheduled turn is not
    idle. A session that has had no turn, or that has the origin "import", is never closed as idle.
    A session that was restored from a file is closed as idle only after a turn in this store.
    """
    info, at = state.info, store.outside.clock.now_ms()
    if state.open_turn is not None or timeout_s is None or not can_end_as_idle(info):
        return False
    if at - info.updated_at < timeout_s * 1000 or info.id in await _awaiting_turns(store):
        return False
    if state.header.received and (await authority_of(store.backend, info.id)).turn is not None:
        return False  # its newest turn came from a file
    try:
        end = new_side(SessionEnded(by="idle"), at=at)
        log = store.backend
        entries = await episodes.with_episode(log, info.id, state.head, (end,), at, info=info)
        await append_to(log, info.id, *entries, at=at, expected_head=state.head)
    except HeadConflict:  # the session is not idle
        return False
    return True


async def ending(store: Store, timeout_s: float | None) -> list[StreamId]:
    """Return the sessions that `expire_or_end` might close, which are idle or have open questions.

    No other session can have an expired question.
    """
    found = [question.stream for question in await store.backend.open_of_all(Question.kind)]
    if timeout_s is not None:
        upto = math.floor(store.outside.clock.now_ms() - timeout_s * 1000)
        awaiting = await _awaiting_turns(store)
        idle = await store.backend.idle_sessions(upto)
        found += [stream for stream in idle if stream not in awaiting]
    return list(dict.fromkeys(found))


async def _awaiting_turns(store: Store) -> set[StreamId]:
    """Return the sessions with a requested turn that has not begun yet."""
    return {each.stream for each in await store.backend.open_of_all(TurnRequested.kind)}


async def expire_or_end(store: Store, session: str, timeout_s: float | None) -> bool:
    """Close the open turn of `session` if its question has expired, then call `end_if_idle`."""
    stream, clock = StreamId(session), store.outside.clock
    state = await store.backend.state(stream)
    if state.header.kind != "session" or state.header.origin == "knowledge":
        return False
    is_open = state.open_turn is not None
    if is_open and await abandonment.expire_question(store.backend, clock, stream):
        state = await store.backend.state(stream)
    return await end_if_idle(store, state, timeout_s)


async def note_when(
    environment: environments.Environment,
    body: SideBody,
    contents: tuple[bytes, ...] = (),
    *,
    is_open: bool,
) -> Entry | None:
    """Append `body`, if the session is in the expected state.

    If `is_open` is True, the session must have an open turn; if it is False, the session must have
    no open turn.
    Shape: the new entry; None if nothing was appended.
    """
    store, stream = environment.store, environment.stream
    while True:
        state = await store.state(stream)
        if (state.open_turn is not None) != is_open:
            return None
        at, head = environment.clock.now_ms(), state.head
        with suppress(HeadConflict):
            appended = await append_to(
                store, stream, new_side(body), at=at, expected_head=head, blobs=contents
            )
            return appended[0]
