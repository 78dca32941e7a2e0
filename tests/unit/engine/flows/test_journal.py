from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from perdure.engine.flows.journal import Journal
from perdure.engine.flows.rules.people import reply
from perdure.errors import CorruptLog, FlowRefusal, SessionNotFound
from perdure.session.codec import body_of, new_side, new_tree
from perdure.session.entries import Entry
from perdure.session.flows.kinds import FlowCompleted, FlowStarted, NodeClaimed, NodeParked
from perdure.session.flows.run import FlowState
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.memory.kinds import EpisodeRecorded
from perdure.session.messages import assistant, user
from perdure.session.notes import Label, SideBody
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph

LINE = graph("o>z")


async def journal(*bodies: SideBody) -> tuple[MemoryStore, Journal]:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    header = StreamHeader(FLOW, clock.now_ms(), kind="flow")
    entries = tuple(new_side(body) for body in bodies)
    write = Write(stream=FLOW, create=header, entries=entries)
    await store.commit(Commit(writes=(write,), at=clock.now_ms()))
    return store, Journal(store, FLOW, clock)


STARTED = FlowStarted("p", "/w", "/w/r", LINE, ("o",))
CLAIMED = NodeClaimed("o", "o", StreamId(f"{FLOW}__o"), "start")


async def test_journal_includes_appends_of_other_processes() -> None:
    store, first = await journal(STARTED)
    second = Journal(store, FLOW, ManualClock())
    assert (await first.state()).run.running_nodes == ()
    await second.append(lambda _: [CLAIMED])
    assert (await first.state()).run.running_nodes == ("o",)


async def test_decision_based_on_an_outdated_flow_state_is_computed_again() -> None:
    _, log = await journal(STARTED, CLAIMED, NodeParked("o", "o", "prompt-human"))
    seen: list[int] = []

    def answer(text: str) -> asyncio.Task[FlowState]:
        def decide(state: FlowState) -> Sequence[SideBody]:
            seen.append(state.head)
            return [reply(state, text, "me")]

        return asyncio.ensure_future(log.append(decide))

    results = await asyncio.gather(answer("a"), answer("b"), return_exceptions=True)
    refused = [result for result in results if isinstance(result, FlowRefusal)]
    assert len(refused) == 1
    assert list((await log.state()).run.pending_human_inputs) == ["o"]
    assert max(seen) == 3


async def test_decision_without_entries_appends_nothing() -> None:
    _, log = await journal(STARTED)
    assert (await log.append(lambda _: [])).head == 0


async def test_stream_without_a_flow_start_raises_corrupt_log() -> None:
    _, log = await journal(Label("x"))
    with pytest.raises(CorruptLog):
        await log.state()
    store, _ = await journal(STARTED)
    with pytest.raises(SessionNotFound):
        await Journal(store, StreamId("nobody"), ManualClock()).state()


async def test_journal_does_not_read_entries_that_it_appended() -> None:
    store, log = await journal(STARTED)
    await log.state()
    reads = 0
    read = store.entries

    async def counted(
        stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        nonlocal reads
        reads += 1
        return await read(stream, after, limit, **chosen)

    store.entries = counted
    assert (await log.append(lambda _: [CLAIMED])).head == 1
    assert reads == 1  # for what to decide on
    assert (await log.latest_or_read()).run.running_nodes == ("o",)
    assert reads == 1


async def test_journal_processes_each_entry_once_and_in_order() -> None:
    store, log = await journal(STARTED, CLAIMED, NodeParked("o", "o", "prompt-human"))
    entries = await store.entries(FLOW)
    log.follow(entries)  # nothing was read yet
    assert log.latest is None
    other = Journal(store, FLOW, ManualClock())
    await other.state()
    other.follow(entries)
    assert other.latest == await log.state()
    other.follow(entries[:1])  # another task read further meanwhile
    assert other.latest == await log.state()
    store, behind = await journal(STARTED)
    await behind.state()
    behind.follow(entries[2:])  # before which one is not known
    assert behind.latest == await Journal(store, FLOW, ManualClock()).state()


async def test_completed_flow_records_episodes_of_its_roles_in_one_commit() -> None:
    store, log = await journal(STARTED, CLAIMED)
    session = StreamId(f"{FLOW}__o")
    said = StreamHeader(session, 1, origin="role", parent=FLOW)
    entries = (new_tree(user("Plan it")), new_tree(assistant("Done")))
    await store.commit(Commit(writes=(Write(stream=session, create=said, entries=entries),), at=1))
    before = await store.position()
    await log.append(lambda _: (FlowCompleted(),))
    (note,) = await store.notes(session, (EpisodeRecorded.kind,))
    body = body_of(note)
    assert isinstance(body, EpisodeRecorded)
    assert (note.about, body.by, body.messages) == (f"{session}/1", "flow", 2)
    added = [each.entry.kind for each in await store.feed(before)]
    assert sorted(added) == ["episode", "flow_completed"]
