"""A flow's log as one process follows it: the state as it grows, and what is decided appended.

Only new entries are read, so following costs the same however long the log is. Every decision is
made on the state it is appended to: when somebody else was faster, it is made anew.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.errors import HeadConflict
from perdure.session.clock import Clock
from perdure.session.codec import body_of, new_side
from perdure.session.flows.fold import flow_state, state_after
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from perdure.stores.protocol import Commit, SessionStore, Write

Decide = Callable[[FlowState], Sequence[SideBody]]
"""What becomes of a flow, from where it stands. Raises where nothing may."""


class Journal:
    """One flow's log."""

    def __init__(self, store: SessionStore, flow: StreamId, clock: Clock) -> None:
        self.flow = flow
        self._store = store
        self._clock = clock
        self._state: FlowState | None = None

    @property
    def known(self) -> FlowState | None:
        """The state when somebody last asked for it; None before."""
        return self._state

    async def state(self) -> FlowState:
        """Where the flow stands now.

        Raises: SessionNotFound; CorruptLog when the stream is not a flow's.
        """
        known = self._state
        after = -1 if known is None else known.head
        entries = await self._store.entries(self.flow, after=after)
        log = ((entry, body_of(entry)) for entry in entries)
        if known is None:
            known = flow_state(log)
        else:
            for entry, body in log:
                known = state_after(known, entry, body)
        if self._state is None or known.head >= self._state.head:
            self._state = known  # another task of this process may have read further meanwhile
        return self._state

    def write(self, state: FlowState, *bodies: SideBody) -> Write:
        """`bodies` as a write that counts only while the flow stands at `state`."""
        entries = tuple(new_side(body) for body in bodies)
        return Write(stream=self.flow, entries=entries, expected_head=state.head)

    async def append(self, decide: Decide) -> FlowState:
        """Append what `decide` makes of the flow, on the state it then stands at.

        Durable: when this returns. Raises: what `decide` raises; nothing was appended then.
        """
        while True:
            state = await self.state()
            bodies = decide(state)
            if not bodies:
                return state
            commit = Commit(writes=(self.write(state, *bodies),), at=self._clock.now_ms())
            try:
                await self._store.commit(commit)
            except HeadConflict:
                continue
            return await self.state()
