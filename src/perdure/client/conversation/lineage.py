"""The session that a call of ``invoke_agent`` opens: its id, its end and its spending."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import msgspec

from perdure.engine.turns.state import TurnState, fold
from perdure.errors import SessionNotFound
from perdure.session.codec import body_of
from perdure.session.ids import StreamId, generated_stream_id
from perdure.session.info import SessionInfo
from perdure.session.ledger import Delegated, ToolFinished, ToolStarted, TurnFinished
from perdure.session.notes import Invocation, SessionStarted
from perdure.stores.access.lazy_modules import Later
from perdure.stores.protocol import EMPTY, LogReader, StreamState
from perdure.tools.builtin.delegation import INVOKE_AGENT

if TYPE_CHECKING:
    from perdure.engine.turns import carried
else:
    carried = Later("perdure.engine.turns.carried")

_RANDOM_BYTES = 10


def child_id(parent: StreamId, created_at: int, key: str) -> StreamId:
    """Return the id of the session that the call with the idempotency key `key` opens.

    The id is the same for every attempt on every machine, and as hard to guess as the id of the
    parent.
    Units: `created_at` is the creation time of the parent, in Unix milliseconds.
    """
    seed = hashlib.blake2b(msgspec.json.encode((parent, key)), digest_size=_RANDOM_BYTES).digest()
    return generated_stream_id(created_at, seed)


class Child(msgspec.Struct, frozen=True):
    """A session that a tool call opened for an invoked agent, with data for display."""

    info: SessionInfo
    agent: str | None
    call_id: str | None


async def first_turn(store: LogReader, child: StreamId) -> TurnState | None:
    """Return the first turn of an invoked agent's session; None until this turn has ended."""
    entries = await store.entries(child)
    ends = [place for place, entry in enumerate(entries) if entry.kind == TurnFinished.kind]
    if not ends:
        return None
    return fold(TurnState(stream=child, head=-1), entries[: ends[0] + 1])


async def delegated_to(store: LogReader, child: StreamId) -> Delegated | None:
    """Return `child` with its spending so far; None if the session `child` does not exist."""
    try:
        state = await store.state(child)
    except SessionNotFound:
        return None
    return Delegated(child, (await carried.carried_state(store, child, state.head)).spent)


async def invocations_in(store: LogReader, parent: StreamId) -> int:
    """Count the calls in `parent` that opened a session and have returned."""
    bodies = [body_of(entry) for entry in await store.notes(parent, (ToolFinished.kind,))]
    return sum(isinstance(body, ToolFinished) and body.delegated is not None for body in bodies)


async def invocation_of(store: LogReader, state: StreamState) -> Invocation | None:
    """Return the call that opened a session; None if no agent invoked it."""
    if state.info.origin != "subagent":
        return None
    started = await started_in(store, state.info.id)
    return None if started is None else started.invoked_by


async def children_of(store: LogReader, parent: StreamId, last: int | None = None) -> list[Child]:
    """Return the sessions opened by calls of `parent`, oldest first.

    The running time depends on the number of calls in the log of `parent`, not on the number of
    sessions. With `last`, only calls among the newest `last` entries of the log of `parent` are
    returned.
    """
    state = await store.state(parent)
    created_at = state.info.created_at
    found: dict[StreamId, Child] = {}
    if last is None:
        calls = await store.notes(parent, (ToolStarted.kind,))
    else:
        calls = await store.entries(parent, max(state.head - last, EMPTY))
    for entry in calls:
        is_own_call = entry.kind == ToolStarted.kind and entry.stream == parent
        body = body_of(entry) if is_own_call else None
        if not isinstance(body, ToolStarted) or body.tool != INVOKE_AGENT:
            continue
        child = child_id(parent, created_at, body.idempotency_key)
        try:
            info = (await store.state(child)).info
        except SessionNotFound:
            continue
        started = await started_in(store, child)
        agent = None if started is None else (started.agent or {}).get("id")
        found[child] = Child(info, None if agent is None else str(agent), body.id)
    return list(found.values())


async def started_in(store: LogReader, session: StreamId) -> SessionStarted | None:
    """Return the entry with which a runtime started `session`; None if no runtime did."""
    for entry in await store.notes(session, (SessionStarted.kind,)):
        body = body_of(entry)
        if isinstance(body, SessionStarted):
            return body
    return None
