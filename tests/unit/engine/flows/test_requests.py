"""Requests of flows: one is open at a time, until it is closed or replaced."""

from __future__ import annotations

from perdure.engine.flows.requests import (
    REPLACED,
    close_flow_request,
    end_of_request,
    open_requests,
    store_flow_request,
)
from perdure.session.codec import new_side
from perdure.session.flows.kinds import (
    FlowRequestClosed,
    FlowRequested,
    FlowStarted,
    NeededAgent,
)
from perdure.session.info import StreamHeader
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.flow_log import FLOW, graph

WANTED = FlowRequested((NeededAgent("o", {"add": "hash"}),), ("/w", "/w/r"))
MOVED = FlowRequested(WANTED.agents, ("/v", "/v/r"))


async def started() -> MemoryStore:
    store = MemoryStore(clock=ManualClock(), random=SeededRandom(1))
    body = FlowStarted("p", "/w", "/w/r", graph("o>z"), ("o",))
    write = Write(stream=FLOW, create=StreamHeader(FLOW, 0, kind="flow"), entries=(new_side(body),))
    await store.commit(Commit(writes=(write,), at=0))
    return store


async def test_repeated_equal_flow_request_is_stored_once() -> None:
    store = await started()
    first = await store_flow_request(store, FLOW, WANTED, 1)
    assert await store_flow_request(store, FLOW, WANTED, 2) == first
    assert [each.seq for each in await open_requests(store, FLOW)] == [first]
    assert [each.seq for each in await store.open_of_all(FlowRequested.kind)] == [first]


async def test_different_flow_request_replaces_the_open_request() -> None:
    store = await started()
    first = await store_flow_request(store, FLOW, WANTED, 1)
    second = await store_flow_request(store, FLOW, MOVED, 2)
    assert await end_of_request(store, FLOW, first) == FlowRequestClosed(REPLACED)
    assert await end_of_request(store, FLOW, second) is None
    assert [each.seq for each in await store.open_of_all(FlowRequested.kind)] == [second]


async def test_flow_request_after_a_closed_request_is_stored_separately() -> None:
    store = await started()
    first = await store_flow_request(store, FLOW, WANTED, 1)
    (request,) = await open_requests(store, FLOW)
    failed = FlowRequestClosed("config_error", "there is no folder")
    await close_flow_request(store, request.id, FLOW, failed, 2)
    assert await end_of_request(store, FLOW, first) == failed
    assert await open_requests(store, FLOW) == []
    assert await store_flow_request(store, FLOW, WANTED, 3) > first
