"""Follow a flow's log: read new entries into the state, and append decisions.

The journal reads only new entries that other processes have appended, so its running time does not
depend on the length of the log. Each decision is based on a state of the flow, and is appended only
if the flow is still in this state. If another process appended first, the decision is made again
for the new state, so the first attempt can use the cached state without reading the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from perdure.engine.episodes import role_episodes
from perdure.engine.flows.state_cache import CachedState, state_cache_of
from perdure.errors import HeadConflict
from perdure.session.clock import Clock
from perdure.session.codec import body_of, new_side
from perdure.session.entries import Entry
from perdure.session.flows.fold import flow_state, follow
from perdure.session.flows.kinds import FlowCompleted, FlowImported, FlowStarted
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.notes import SideBody
from perdure.stores.marks import marks_of
from perdure.stores.protocol import Commit, Write
from perdure.stores.session_store import SessionStore

Decide = Callable[[FlowState], Sequence[SideBody]]
"""Returns the entries to append to a flow in a given state; after an error, nothing is appended."""


async def flows_in(store: SessionStore) -> list[StreamId]:
    """Return the ids of all flows; the flow that was started or imported last comes first."""
    begun: dict[StreamId, int] = {}
    for note in await store.notes_of_all((FlowStarted.kind, FlowImported.kind)):
        begun.setdefault(note.stream, note.at)
    return sorted(begun, key=lambda flow: (begun[flow], flow), reverse=True)


class Journal:
    """Reads the log of one flow, and appends to it."""

    def __init__(self, store: SessionStore, flow: StreamId, clock: Clock) -> None:
        self.flow = flow
        self._store = store
        self._clock = clock
        self._state: FlowState | None = None

    def _is_own(self, entry: Entry) -> bool:
        return marks_of(self._store).is_own(entry)

    @property
    def latest(self) -> FlowState | None:
        """The state at the last read or append; None before the first read."""
        return self._state

    async def state(self) -> FlowState:
        """Read and return the current state of the flow.

        Raises: SessionNotFound if the stream does not exist; CorruptLog if the stream is not a
        flow.
        """
        if self._state is None:
            state = await self._first()
            self._state = state if self._state is None else self._state
        else:
            self.follow(await self._store.entries(self.flow, after=self._state.head))
        return self._state

    async def _first(self) -> FlowState:
        """Return the state at the first read, computed from this process's cached state if valid.

        Raises: the same errors as `state`.
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
        """Return the state at the last read or append; if there was none, read the log.

        Raises: the same errors as `state`.
        """
        return await self.state() if self._state is None else self._state

    def follow(self, entries: Iterable[Entry]) -> None:
        """Update the state with `entries`, which were appended to the flow.

        Entries that are already known are skipped, because another task might have read further.
        Entries that follow a gap in the sequence are skipped, too, because the next read of the log
        returns them together with the missing entries.
        """
        if self._state is not None:
            told = ((entry, body_of(entry)) for entry in _following(self._state.head, entries))
            self._state = follow(self._state, told, self._is_own)

    def write(self, state: FlowState, *bodies: SideBody) -> Write:
        """Return a write that appends `bodies` only if `state` is still the flow's state."""
        entries = tuple(new_side(body) for body in bodies)
        return Write(stream=self.flow, entries=entries, expected_head=state.head)

    async def append(self, decide: Decide) -> FlowState:
        """Append the entries that `decide` returns for the flow's current state.

        Durable: the entries are durable when the call returns.
        Raises: the errors that `decide` raises; in this case, nothing is appended.
        """
        while True:
            state = await self.state()
            bodies = decide(state)
            if not bodies:
                return state
            writes = (self.write(state, *bodies),)
            if any(isinstance(body, FlowCompleted) for body in bodies):
                writes += await role_episodes(self._store, state.sessions.values())
            commit = Commit(writes=writes, at=self._clock.now_ms())
            try:
                committed = await self._store.commit(commit)
            except HeadConflict:
                continue
            self.follow(committed.entries[0])
            return await self.latest_or_read()


def _following(head: int, entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield those of `entries` that follow the entry with seq `head` without a gap."""
    for entry in entries:
        if entry.seq == head + 1:
            head = entry.seq
            yield entry
