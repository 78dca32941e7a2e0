"""Closing a flow, and flows that cannot continue."""

from __future__ import annotations

import msgspec

from perdure.engine.flows.rules.closure import is_work_left, obstacles, stall
from perdure.session.flows.kinds import (
    ForwardPassClosed,
    HandoffAwaited,
    HumanReplied,
    NodeParked,
)
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})
FORK = graph("o>a", "o>b", "a>z", "b>z", z="owner")


def test_last_node_of_the_owner_role_can_close_the_flow() -> None:
    log = FlowLog(LINE).work("owner-intake", "a").work("a", "end").claim("end", "a=>end")
    assert obstacles(log.state, "end") == []
    log.add(ForwardPassClosed("end"))
    assert log.run.status == "awaiting_improvement_choice"
    assert log.run.running_nodes == ()


def test_only_the_last_node_can_close_a_finished_flow() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    assert obstacles(log.state, "owner-intake") == [
        "node owner-intake still hands over to others",
        "nothing was handed over along owner-intake=>a",
        "nothing was handed over along a=>end",
    ]
    log.hand("owner-intake", "a").claim("a", "owner-intake=>a")
    assert obstacles(log.state, "a")[0] == "only a node of the role owner closes the work"


def test_flow_stays_open_while_a_node_runs_or_waits() -> None:
    log = FlowLog(FORK).work("o", "a", "b").work("a", "z").claim("z", "a=>z").claim("b", "o=>b")
    assert "node b is at work" in obstacles(log.state, "z")
    log.add(NodeParked("b", "b", "prompt-human"), HumanReplied("b", "go", "me"))
    assert "node b waits for a person" in obstacles(log.state, "z")
    assert "a reply to node b has not been read" in obstacles(log.state, "z")


def test_flow_that_runs_or_waits_for_an_answer_is_not_stalled() -> None:
    log = FlowLog(LINE)
    assert stall(log.state) is None
    log.claim("owner-intake")
    assert stall(log.state) is None
    log.add(NodeParked("owner-intake", "owner", "prompt-human"))
    assert stall(log.state) is None


def test_flow_whose_last_node_waits_forever_is_stalled() -> None:
    log = FlowLog(LINE).work("owner-intake", "a").work("a", "end").claim("end", "a=>end")
    log.add(HandoffAwaited("end"))
    assert stall(log.state) == "no node can go on: end waits for a handoff"


def test_stall_reason_contains_the_incomplete_join() -> None:
    nodes = tuple(msgspec.structs.replace(n, awaits_all_inputs=n.id == "z") for n in FORK.nodes)
    log = FlowLog(msgspec.structs.replace(FORK, nodes=nodes))
    log.work("o", "a", "b").work("a", "z")
    lost = msgspec.structs.replace(log.run, receiving_handoff={})  # as a flow may be imported
    stalled = stall(msgspec.structs.replace(log.state, run=lost))
    assert stalled == "no node can go on: z waits for b"


def test_second_of_two_last_nodes_closes_the_flow() -> None:
    log = FlowLog(graph("o>y", "o>z", y="owner", z="owner")).work("o", "y", "z")
    log.claim("y", "o=>y")
    assert is_work_left(log.state, "y")
    log.add(HandoffAwaited("y")).claim("z", "o=>z")
    assert not is_work_left(log.state, "z")
    assert obstacles(log.state, "z") == []
    assert log.add(ForwardPassClosed("z")).run.awaiting_handoff == ()


def test_flow_stays_open_while_a_node_waits_for_rework() -> None:
    log = FlowLog(graph("o>y", "o>z", y="owner", z="owner")).work("o", "y", "z")
    log.claim("z", "o=>z").claim("y", "o=>y").hand("y", "o")
    assert "node y waits for a handoff" in obstacles(log.state, "z")


def test_undelivered_reply_to_another_node_keeps_the_flow_open() -> None:
    flow = graph("o>n", "o>b", "b>n", "n>z", "b>z", n="owner", z="owner")
    log = FlowLog(flow).work("o", "n", "b").claim("n", "o=>n").add(HandoffAwaited("n"))
    log.work("b", "z").claim("b").add(NodeParked("b", "b", "prompt-human")).claim("z", "b=>z")
    assert not is_work_left(log.state, "z")
    assert is_work_left(log.add(HumanReplied("n", "go on", "me")).state, "z")


def test_flow_with_all_nodes_done_but_not_closed_is_stalled() -> None:
    log = FlowLog(graph("o>z")).work("o", "z").claim("z", "o=>z").hand("z")
    assert stall(log.state) == (
        "no node can go on: every node has done its work, and nobody closed it"
    )
