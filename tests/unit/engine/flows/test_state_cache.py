"""The cached state of a flow: the next read folds only new entries of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.engine.flows import state_cache
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.state_cache import CachedState, StateCache, state_cache_of
from perdure.errors import SessionNotFound
from perdure.session.codec import new_side
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowCompleted, FlowStarted, NodeClaimed, NodeParked
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import SideBody
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.marks import TRUSTED, Marks
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, FlowLog, entry_of, graph

LINE = graph("o>z")
STARTED = FlowStarted("p", "/w", "/w/r", LINE, ("o",))
CLAIMED = NodeClaimed("o", "o", StreamId(f"{FLOW}__o"), "start")
PARKED = NodeParked("o", "o", "prompt-human")


class CountedStore(MemoryStore):
    """A store that counts the log entries that it returns."""

    given = 0

    async def entries(
        self, stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        """See ``LogReader``."""
        found = await super().entries(stream, after, limit, **chosen)
        self.given += len(found)
        return found


def store_of() -> CountedStore:
    return CountedStore(clock=ManualClock(), random=SeededRandom(1))


async def begun(store: MemoryStore, *bodies: SideBody, at: int = 1) -> None:
    entries = tuple(new_side(body) for body in bodies)
    write = Write(stream=FLOW, create=StreamHeader(FLOW, at, kind="flow"), entries=entries)
    await store.commit(Commit(writes=(write,), at=at))


async def appended(store: MemoryStore, *bodies: SideBody, at: int = 1) -> None:
    write = Write(stream=FLOW, entries=tuple(new_side(body) for body in bodies))
    await store.commit(Commit(writes=(write,), at=at))


async def look(store: MemoryStore) -> FlowState:
    """Return the state of the flow from a new journal."""
    return await Journal(store, FLOW, ManualClock()).state()


async def test_next_read_of_a_flow_state_reads_only_new_entries() -> None:
    store = store_of()
    await begun(store, STARTED, *([CLAIMED, PARKED] * 500))
    first = await look(store)
    assert store.given == 1001
    assert await look(store) == first
    assert store.given == 1001 + 1  # the last one, which is still there
    await appended(store, CLAIMED, at=2)
    assert (await look(store)).run.running_nodes == ("o",)
    assert store.given == 1002 + 2


async def test_new_flow_with_a_reused_id_does_not_use_the_cached_state() -> None:
    for bodies in ([STARTED], [STARTED, PARKED], [STARTED, PARKED, CLAIMED]):
        store = store_of()
        await begun(store, STARTED, CLAIMED)
        assert (await look(store)).run.running_nodes == ("o",)
        await store.retention.remove(FLOW)
        with pytest.raises(SessionNotFound):
            await look(store)
        await begun(store, STARTED, CLAIMED)
        await look(store)
        await store.retention.remove(FLOW)
        await begun(store, *bodies, at=2)
        state = await look(store)
        fresh = await begun_elsewhere(*bodies)
        assert state == fresh


async def begun_elsewhere(*bodies: SideBody) -> FlowState:
    store = store_of()
    await begun(store, *bodies, at=2)
    return await look(store)


async def test_changed_trust_invalidates_the_cached_flow_state() -> None:
    store = store_of()
    endorsed: frozenset[str] = frozenset()
    await begun(store, STARTED)
    assert not (await look(store)).is_foreign
    store.marks = Marks(lambda: b"k" * 32, is_trusted=False, endorsed=lambda: endorsed)
    assert (await look(store)).is_foreign
    endorsed = frozenset(store.marks.endorsements(await store.entries(FLOW)))
    assert not (await look(store)).is_foreign
    endorsed = frozenset()
    assert (await look(store)).is_foreign


async def test_concurrent_reads_return_same_state() -> None:
    store = store_of()
    await begun(store, STARTED, CLAIMED)
    journal = Journal(store, FLOW, ManualClock())
    found = await asyncio.gather(*(journal.state() for _ in range(3)), look(store), look(store))
    assert found == [await look(store)] * 5
    assert state_cache_of(store) is state_cache_of(store)
    assert state_cache_of(store) is not state_cache_of(store_of())


def kept(flow: str, entries: int, *bodies: SideBody) -> CachedState:
    log = FlowLog(LINE).add(*bodies)
    return CachedState(log.state, with_place(flow, entries - 1), TRUSTED.trust_state)


def with_place(flow: str, seq: int) -> Entry:
    entry = entry_of(seq, PARKED)
    return Entry(StreamId(flow), *(getattr(entry, name) for name in Entry.__struct_fields__[1:]))


def held(states: StateCache, flows: Sequence[str]) -> list[str]:
    found = {flow: states.take(StreamId(flow)) for flow in flows}
    return [flow for flow, each in found.items() if each is not None]


def test_flow_states_are_cached_up_to_the_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "MOST_ENTRIES", 10)
    states = StateCache()
    for each in (kept("a", 6), kept("b", 5), kept("c", 4), kept("a", 5)):
        states.keep(each)
    assert held(states, "abc") == ["a", "c"]
    states.keep(kept("b", 10))
    assert held(states, "abc") == ["b"]


def test_completed_flow_is_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_cache, "MOST_ENTRIES", 10)
    states = StateCache()
    for each in (kept("a", 6, FlowCompleted()), kept("b", 5), kept("c", 6, FlowCompleted())):
        states.keep(each)
    assert held(states, "abc") == ["b"]


def test_storing_a_flow_state_does_not_scan_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    is_completed = state_cache._is_completed  # pyright: ignore[reportPrivateUsage] - it is counted

    def counted(each: CachedState) -> bool:
        looked.append(each.last.stream)
        return is_completed(each)

    monkeypatch.setattr(state_cache, "_is_completed", counted)
    monkeypatch.setattr(state_cache, "MOST_ENTRIES", 100)
    states = StateCache()
    names = [f"flow-{number}" for number in range(60)]
    for number, name in enumerate(names):
        bodies = (FlowCompleted(),) if number % 2 else ()
        states.keep(kept(name, 5, *bodies))
    assert looked == names
