"""Parking of nodes that cannot start."""

from __future__ import annotations

from pathlib import Path

from perdure.engine.flows.parked_work import ParkedWork
from perdure.engine.flows.rules.people import configure, reply
from perdure.engine.flows.rules.ready_nodes import runnable
from perdure.session.flows.kinds import NodeParked
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import graph
from tests.fakes.scripted_roles import begun

SOLO = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner"})


async def test_reply_is_kept_until_the_role_is_configured(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    journal = (await begun(store, clock, SOLO, tmp_path)).journal
    body = NodeParked("owner-intake", "owner", "autonomous-abort", "no agent")
    await journal.append(lambda _: (body,))
    state = await journal.append(lambda state: (reply(state, "go", "me"),))
    parked_work = ParkedWork(journal)
    (work,) = runnable(state)
    assert not parked_work.is_unable(state, work)
    await parked_work.park_unbegun(state, work, body)
    state = await journal.state()
    assert runnable(state) == (work,)
    assert parked_work.is_unable(state, work)
    state = await journal.append(lambda state: (configure(state, "owner", model="a:b"),))
    assert not parked_work.is_unable(state, work)


async def test_node_is_not_set_to_waiting_if_the_flow_changed_meanwhile(tmp_path: Path) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    journal = (await begun(store, clock, SOLO, tmp_path)).journal
    before = await journal.state()
    await journal.append(lambda state: (configure(state, "owner", model="a:b"),))
    await ParkedWork(journal).park(before, NodeParked("owner-intake", "owner", "autonomous-abort"))
    assert (await journal.state()).run.awaiting_human_nodes == {}
