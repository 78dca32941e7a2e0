"""The entries of earlier turns that a new turn reads to build its state."""

from __future__ import annotations

from perdure.engine.turns.carried import PAGE, carrying_from
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.session.notes import AgentBound, SessionStarted
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom

S = StreamId("s")


async def carried(*bodies: NewEntry) -> list[int]:
    """Return the seqs of the entries that are read from a log of `bodies`."""
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    write = Write(stream=S, create=StreamHeader(S, 0), entries=bodies)
    await store.commit(Commit(writes=(write,), at=1))
    return [entry.seq for entry in await carrying_from(store, S, len(bodies) - 1)]


def said(count: int) -> list[NewEntry]:
    return [new_tree(user(str(number))) for number in range(count)]


async def test_read_of_session_state_stops_at_the_newest_agent_binding() -> None:
    bound = new_side(AgentBound({"id": "a"}))
    assert await carried(bound, *said(3), bound, *said(2)) == [4, 5, 6]
    assert await carried(new_side(SessionStarted({"id": "a"}, {}, "")), *said(1)) == [0, 1]


async def test_long_log_is_read_in_pages_from_its_start() -> None:
    log = [*said(10), new_side(AgentBound({"id": "a"})), *said(3 * PAGE)]
    assert await carried(*log) == [*range(10, len(log))]


async def test_entries_that_were_already_read_are_not_read_again() -> None:
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    bodies = (*said(2), new_side(AgentBound({"id": "a"})), *said(5))
    write = Write(stream=S, create=StreamHeader(S, 0), entries=bodies)
    await store.commit(Commit(writes=(write,), at=1))
    head, whole = len(bodies) - 1, await store.entries(S)
    for count in range(1, len(bodies) + 1):
        found = await carrying_from(store, S, head, whole[-count:])
        assert found == await carrying_from(store, S, head)
    await store.close()
    assert [each.seq for each in await carrying_from(store, S, head, whole)] == [*range(2, 8)]


async def test_read_of_session_state_does_not_stop_at_a_grant() -> None:
    bound, granted = new_side(AgentBound({"id": "a"})), new_side(AgentBound({}, granted_by="me"))
    assert await carried(*said(2), bound, *said(1), granted) == [2, 3, 4]


async def test_log_without_an_agent_binding_is_read_whole() -> None:
    assert await carried(*said(3)) == [0, 1, 2]
