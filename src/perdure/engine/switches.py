"""Which switches of model and thinking level on a branch are in force.

Those of an imported file are history: the agent that is bound to the session here brings its own
model. Some formats record switches and others only the model of each answer, so otherwise a session
would continue with another model for each format.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.session.entries import Entry
from perdure.session.fold import BranchState
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import AgentBound, SessionReceived, SessionStarted
from perdure.stores.protocol import LogReader

_BINDINGS = (SessionStarted.kind, AgentBound.kind)


class Switches:
    """The switches of the branches of one session, as far as they were asked for."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._is_of_file: dict[EntryId, bool] = {}

    async def in_force(self, state: BranchState) -> BranchState:
        """Return `state` without the switches that came from a file."""
        if state.model_change is None and state.thinking_change is None:
            return state
        return msgspec.structs.replace(
            state,
            model_change=await self._own(state.model_change),
            thinking_change=await self._own(state.thinking_change),
        )

    async def _own(self, switch: Entry | None) -> Entry | None:
        if switch is None:
            return None
        if switch.id not in self._is_of_file:
            self._is_of_file[switch.id] = await _is_of_file(self._log, switch)
        return None if self._is_of_file[switch.id] else switch


async def _is_of_file(log: LogReader, switch: Entry) -> bool:
    """Whether `switch` was imported: it is older than the agent that was bound here."""
    stream = switch.stream
    state = await log.state(stream)
    notes = await log.notes(stream, (*_BINDINGS, SessionReceived.kind))
    received = received_entries(state.header, stream, notes)
    if state.header.fork is not None or (state.info.source is None and not received):
        return switch.seq < received
    own = (note.seq for note in notes if note.kind in _BINDINGS and note.stream == stream)
    bound = next((seq for seq in own if seq >= received), None)
    return bound is None or switch.seq < bound


def received_entries(header: StreamHeader, stream: StreamId, notes: Iterable[Entry]) -> int:
    """Return the number of entries at the beginning of `stream` that came from a perdure file."""
    told = [n.seq for n in notes if n.kind == SessionReceived.kind and n.stream == stream]
    return max(header.received, *told, 0)
