"""The log of a flow alone decides whether workers should run the flow."""

from __future__ import annotations

import pytest

from perdure.client.flows.waits import is_ready
from perdure.engine.flows.journal import Journal
from perdure.session.codec import new_side
from perdure.session.flows.kinds import (
    FlowStarted,
    HumanReplied,
    NodeClaimed,
    NodeParked,
    RoleConfigured,
    StopAsked,
)
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import SideBody
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph

STARTED = FlowStarted("p", "/w", "/w/r", graph("o>z"), ("o",))
CLAIMED = NodeClaimed("o", "o", StreamId(f"{FLOW}__o"), "start")
ASKED = NodeParked("o", "o", "prompt-human")
REPLIED = HumanReplied("o", "go on", "ana")
UNABLE = NodeParked("o", "o", "autonomous-abort", "a reading is missing", keeps_reply=True)


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ((), True),
        ((CLAIMED,), True),
        ((CLAIMED, ASKED), False),
        ((CLAIMED, ASKED, REPLIED), True),
        ((CLAIMED, ASKED, REPLIED, UNABLE), False),
        ((CLAIMED, ASKED, REPLIED, UNABLE, RoleConfigured("o", "m:x")), True),
        ((CLAIMED, StopAsked("o", "ana")), True),
    ],
    ids=["start", "running", "asked", "replied", "unable", "configured", "stop"],
)
async def test_flow_is_ready_unless_it_waits_for_a_person(
    bodies: tuple[SideBody, ...], expected: bool
) -> None:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    header = StreamHeader(FLOW, 0, kind="flow")
    write = Write(stream=FLOW, create=header, entries=tuple(map(new_side, (STARTED, *bodies))))
    await store.commit(Commit(writes=(write,), at=0))
    state = await Journal(store, FLOW, clock).state()
    assert await is_ready(store, state, clock.now_ms()) is expected
