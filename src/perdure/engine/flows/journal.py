"""A flow's log as one process follows it: the state as it grows, and what is decided appended.

Only new entries are read, and what this process appended is not read at all, so following costs the
same however long the log is. Every decision is made on the state it is appended to: when somebody
else was faster, it is made anew. So a decision that is appended may be made on what is remembered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from perdure.engine.flows.state_cache import CachedState, state_cache_of
from perdure.errors import HeadConflict
from perdure.session.clock import Clock
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.flows.fold import flow_state, follow
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from perdure.stores.marks import marks_of
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore

Decide = Callable[[FlowState], Sequence[SideBody]]
"""What becomes of a flow, from where it stands. Raises where nothing may."""


class Journal:
    """One flow's log."""

    def __init__(self, store: SessionStore, flow: StreamId, clock: Clock) -> None:
        self.flow = flow
        self._store = store
        self._clock = clock
        self._state: FlowState | None = None

    def _is_own(self, entry: Entry) -> bool:
        return marks_of(self._store).is_own(entry)

    @property
    def latest(self) -> FlowState | None:
        """Where the flow stood when it was last looked at or appended to; None before."""
        return self._state

    async def state(self) -> FlowState:
        """Where the flow stands now.

        Raises: SessionNotFound; CorruptLog when the stream is not a flow's.
        """
        if self._state is None:
            state = await self._first()
            self._state = state if self._state is None else self._state
        else:
            self.follow(await self._store.entries(self.flow, after=self._state.head))
        return self._state

    async def _first(self) -> FlowState:
        """Where the flow stands: from where this process knew it to stand, as far as that counts.

        Raises: as `state`.
        """
        kept, trusted = state_cache_of(self._store), marks_of(self._store).trust_state
        known = kept.take(self.flow)
        state: FlowState | None = None
        entries: list[Entry] = []
        if known is not None and known.trusted == trusted:
            entries = await self._store.entries(self.flow, after=known.last.seq - 1)
            if entries[:1] == [known.last]:
                told = ((entry, body_of(entry)) for entry in entries[1:])
                state = follow(known.state, told, self._is_own)
        if state is None:
            entries = await self._store.entries(self.flow)
            state = flow_state(((entry, body_of(entry)) for entry in entries), self._is_own)
        kept.keep(CachedState(state, entries[-1], trusted))
        return state

    async def latest_or_read(self) -> FlowState:
        """Where the flow stood when it was last looked at or appended to; read where nobody has.

        Raises: as `state`.
        """
        return await self.state() if self._state is None else self._state

    def follow(self, entries: Iterable[Entry]) -> None:
        """Take in `entries`, which were appended to the flow.

        Those that are known are left out, as another task may have read further meanwhile; so are
        those before which some are not known.
        """
        if self._state is not None:
            told = ((entry, body_of(entry)) for entry in _following(self._state.head, entries))
            self._state = follow(self._state, told, self._is_own)

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
                committed = await self._store.commit(commit)
            except HeadConflict:
                continue
            self.follow(committed.entries[0])
            return await self.latest_or_read()


def _following(head: int, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Those of `entries` that follow on seq `head`, one upon the other."""
    for entry in entries:
        if entry.seq == head + 1:
            head = entry.seq
            yield entry
