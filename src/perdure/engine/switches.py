"""Find the switches of the model and of the thinking level that are in force on a branch.

A switch from an imported file is not in force, because the agent that is bound to the session in
this store has its own model. Some file formats record switches of the model, and others only the
model of each answer. If imported switches were in force, the model with which a session continues
would depend on the file format. Imported switches can also follow entries that were first written
in this store, if another program has continued an exported session.
"""

from __future__ import annotations

import msgspec

from perdure.session.entries import Entry
from perdure.session.fold import BranchState
from perdure.session.ids import EntryId
from perdure.session.info import received_entries
from perdure.session.kinds import ModelChange
from perdure.session.notes import AgentBound, SessionReceived, SessionStarted, source_of
from perdure.stores.protocol import LogReader

_BINDINGS = (SessionStarted.kind, AgentBound.kind)


class Switches:
    """The switches in force on the branches of one session. Results are cached."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._found: dict[EntryId, Entry | None] = {}

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
        if switch.id not in self._found:
            self._found[switch.id] = await _newest_own(self._log, switch)
        return self._found[switch.id]


async def _newest_own(log: LogReader, switch: Entry) -> Entry | None:
    """Return the newest switch that was not imported, on the branch that ends with `switch`.

    Imported switches that are newer than the returned switch are skipped. A branch has imported
    switches if another program has continued the session's file.
    """
    found: Entry | None = switch
    while found is not None and not await _is_before_agent(log, found):
        if source_of(found.body) is None:
            return found
        before = (await log.context_window(found.stream, found.parent_id, 1)).state
        is_model = found.kind == ModelChange.kind
        found = before.model_change if is_model else before.thinking_change
    return None


async def _is_before_agent(log: LogReader, switch: Entry) -> bool:
    """Whether `switch` was imported before an agent was bound in this store."""
    stream = switch.stream
    state = await log.state(stream)
    notes = await log.notes(stream, (*_BINDINGS, SessionReceived.kind))
    received = received_entries(state.header, stream, notes)
    if state.header.fork is not None or (state.info.source is None and not received):
        return switch.seq < received
    own = (note.seq for note in notes if note.kind in _BINDINGS and note.stream == stream)
    bound = next((seq for seq in own if seq >= received), None)
    return bound is None or switch.seq < bound
