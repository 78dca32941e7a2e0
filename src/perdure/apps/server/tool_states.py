"""The state of each tool call in messages, from the recorded intent to the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.apps.server.values import CallStatus
from perdure.client.session import Session
from perdure.session.codec import readable
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.ledger import ToolFinished, ToolStarted

_MOST = 1_000
"""Maximum number of starts, and of outcomes, that are read for one page of messages."""

CallStates = Mapping[EntryId, Mapping[str, CallStatus]]
"""Message -> id of a tool call in it -> state. A call without a state never started."""


async def call_states(session: Session, messages: Sequence[Entry]) -> CallStates:
    """Return the states of the calls in `messages`, which are one branch, oldest first.

    The log of a fork does not contain the states of calls that it shares with its origin.
    """
    own = [entry for entry in messages if entry.stream == session.id]
    if not any(entry.message and entry.message.tool_calls for entry in own):
        return {}
    changes = [
        entry
        for kind in (ToolStarted.kind, ToolFinished.kind)
        async for entry in session.entries(own[0].seq, kind=kind, limit=_MOST)
    ]
    return states_in(own, changes)


def states_in(messages: Iterable[Entry], changes: Iterable[Entry]) -> CallStates:
    """Return the states of the calls in `messages`; `changes` are side entries of the same log."""
    found: dict[EntryId, dict[str, CallStatus]] = {}
    requested: dict[str, EntryId] = {}
    for entry in sorted((*messages, *changes), key=lambda each: each.seq):
        if entry.message is not None:
            requested |= {call.id: entry.id for call in entry.message.tool_calls}
            continue
        body = readable(entry)
        if not isinstance(body, ToolStarted | ToolFinished) or body.id not in requested:
            continue
        state: CallStatus = "running" if isinstance(body, ToolStarted) else body.outcome
        found.setdefault(requested[body.id], {})[body.id] = state
    return found
