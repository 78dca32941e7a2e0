"""Nodes that can run, and the handoffs and replies that they receive."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from perdure.engine.flows.rules.ready_nodes import Work, deliverable, runnable
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import (
    HandoffAwaited,
    HumanReplied,
    NodeClaimed,
    NodeParked,
    RoleConfigured,
    WorkflowChanged,
)
from perdure.session.flows.run import FlowState
from tests.fakes.flow_log import FLOW, Counted, FlowLog, graph


def ids(state: FlowState) -> list[str]:
    return [work.node.id for work in runnable(state)]


def work_of(state: FlowState, id: str) -> Work:
    return next(work for work in runnable(state) if work.node.id == id)


def joining(graph: Graph, id: str) -> Graph:
    nodes = tuple(
        msgspec.structs.replace(node, awaits_all_inputs=node.id == id) for node in graph.nodes
    )
    return msgspec.structs.replace(graph, nodes=nodes)


FORK = graph("o>a", "o>b", "a>z", "b>z")


def test_flow_begins_with_its_first_node() -> None:
    log = FlowLog(FORK)
    assert ids(log.state) == ["o"]
    assert ids(log.claim("o").state) == []


def test_handoffs_of_two_predecessors_are_both_delivered() -> None:
    log = FlowLog(FORK).work("o", "a", "b").work("a", "z").work("b", "z")
    assert work_of(log.state, "z").delivered == ("a=>z", "b=>z")


def test_join_runs_with_one_input_by_default() -> None:
    half = FlowLog(FORK).work("o", "a", "b").work("a", "z").state
    assert ids(half) == ["b", "z"]
    held = FlowLog(joining(FORK, "z")).work("o", "a", "b").work("a", "z")
    assert ids(held.state) == ["b"]
    assert ids(held.work("b", "z").state) == ["z"]


def test_reentered_join_waits_for_all_inputs_again() -> None:
    log = FlowLog(joining(FORK, "z")).work("o", "a", "b").work("a", "z").work("b", "z")
    log.claim("z", "a=>z", "b=>z").hand("z", "a", "b")
    log.work("a", "z")
    assert "z" not in ids(log.state)
    log.work("b", "z")
    assert "z" in ids(log.state)


def test_node_must_still_hand_over_to_its_remaining_successors() -> None:
    log = FlowLog(FORK).work("o", "a")
    assert ids(log.state) == ["o", "a"]
    assert work_of(log.state, "o").cause == "owed"
    assert ids(log.claim("o").hand("o", "b").state) == ["a", "b"]


def test_node_can_hand_over_forward_and_backward_together() -> None:
    log = FlowLog(graph("o>a", "a>z")).work("o", "a").claim("a", "o=>a").hand("a", "z", "o")
    assert log.run.awaiting_handoff == ("a",)
    assert log.run.completed_handoffs == ("a=>z",)
    assert ids(log.state) == ["o", "z"]


def test_handoff_made_before_a_rework_request_is_not_delivered() -> None:
    log = FlowLog(graph("a>b", "b>z")).work("a", "b").claim("b", "a=>b").hand("b", "a")
    log.state = msgspec.structs.replace(
        log.state,
        run=msgspec.structs.replace(
            log.run, receiving_handoff=log.run.receiving_handoff | {"a=>b": ("old.md",)}
        ),
    )
    assert deliverable(log.state, "b") == ()
    assert ids(log.state) == ["a"]


def test_rework_request_withdraws_an_unread_handoff() -> None:
    log = FlowLog(graph("a>b", "b>z")).work("a", "b").claim("b", "a=>b").hand("b", "a")
    log.state = msgspec.structs.replace(
        log.state,
        run=msgspec.structs.replace(
            log.run, receiving_handoff=log.run.receiving_handoff | {"a=>b": ("old.md",)}
        ),
    )
    work = work_of(log.state, "a")
    assert (work.delivered, work.superseded) == (("b=>a",), ("a=>b",))
    log.claim("a", *work.delivered, superseded=work.superseded)
    assert log.run.receiving_handoff == {}
    assert "a=>b" not in log.run.completed_handoffs
    assert ids(log.hand("a", "b").state) == ["b"]


def test_earlier_node_of_a_role_runs_first() -> None:
    flow = graph("o>a", "o>b", "a>z", "b>z", a="dev", b="dev")
    log = FlowLog(flow).claim("o").hand("o", "b").claim("o").hand("o", "a")
    assert ids(log.state) == ["a"]
    assert ids(log.claim("a", "o=>a").state) == []
    assert ids(log.hand("a", "z").state) == ["b", "z"]


def test_handoff_stays_queued_while_another_node_of_the_role_waits() -> None:
    flow = graph("o>a", "o>b", "a>z", "b>z", a="dev", b="dev")
    log = FlowLog(flow).work("o", "a", "b").claim("a", "o=>a")
    log.add(NodeParked("a", "dev", "prompt-human"))
    assert ids(log.state) == []
    assert log.run.receiving_handoff == {"o=>b": log.run.history_handoff["o=>b"]}


def test_two_answered_role_instances_can_both_continue() -> None:
    flow = graph("o>a", "o>b", "a>z", "b>z", a="owner_1", b="owner_2")
    log = FlowLog(flow).work("o", "a", "b").claim("a", "o=>a").claim("b", "o=>b")
    log.add(NodeParked("a", "owner_1", "prompt-human"), NodeParked("b", "owner_2", "prompt-human"))
    log.add(HumanReplied("a", "yes", "me"), HumanReplied("b", "no", "me"))
    assert [(work.node.id, work.text) for work in runnable(log.state)] == [
        ("a", "yes"),
        ("b", "no"),
    ]


def test_handoff_continues_a_node_that_waits_for_a_person() -> None:
    log = FlowLog(FORK).work("o", "a", "b").work("a", "z").claim("z", "a=>z")
    log.add(NodeParked("z", "z", "prompt-human")).work("b", "z")
    assert work_of(log.state, "z").delivered == ("b=>z",)


def test_reply_is_delivered_before_a_handoff() -> None:
    log = FlowLog(FORK).work("o", "a", "b").work("a", "z").claim("z", "a=>z")
    log.add(NodeParked("z", "z", "prompt-human")).work("b", "z").add(HumanReplied("z", "go", "me"))
    work = work_of(log.state, "z")
    assert (work.cause, work.text, work.delivered) == ("reply", "go", ())
    log.add(NodeClaimed("z", "z", FLOW, "reply", text="go"))
    assert list(log.run.receiving_handoff) == ["b=>z"]


def test_handoff_does_not_continue_a_stopped_or_denied_node() -> None:
    for reason in ("autonomous-abort", "consent", "consent-denied", "handoff-approval"):
        log = FlowLog(FORK).work("o", "a", "b").work("a", "z").claim("z", "a=>z")
        log.add(NodeParked("z", "z", reason)).work("b", "z")
        assert ids(log.state) == []


def test_reply_ends_the_wait_for_a_handoff() -> None:
    log = FlowLog(graph("o>a", "o>b", "b>a", "a>z")).work("o", "a", "b").claim("b", "o=>b")
    log.claim("a", "o=>a").add(HandoffAwaited("a"))
    assert ids(log.state) == []
    log.add(HumanReplied("a", "go on", "me"))
    work = work_of(log.state, "a")
    assert (work.cause, work.delivered) == ("reply", ())
    log.add(NodeClaimed("a", "a", FLOW, "reply", text="go on"))
    assert log.run.awaiting_handoff == ()


def test_node_continues_if_the_edge_it_waits_for_is_removed() -> None:
    log = FlowLog(graph("o>a", "o>b", "b>a", "b>z", "a>z")).work("o", "a", "b").claim("b", "o=>b")
    log.claim("a", "o=>a").add(HandoffAwaited("a"))
    assert ids(log.state) == []
    log.add(WorkflowChanged(graph("o>a", "o>b", "b>z", "a>z")))
    work = work_of(log.state, "a")
    assert (work.cause, work.delivered) == ("owed", ())


def test_role_continues_with_queued_handoffs_after_its_configuration() -> None:
    log = FlowLog(graph("o>a", "a>z")).work("o", "a")
    log.add(NodeParked("a", "a", "role-configuration"))
    assert ids(log.state) == []
    log.add(RoleConfigured("a", model="echo:hi"))
    work = work_of(log.state, "a")
    assert (work.cause, work.delivered) == ("configuration", ("o=>a",))


def test_join_waits_until_a_returned_input_is_handed_over_again() -> None:
    flow = joining(graph("o>a", "o>b", "a>j", "b>j", "j>x", "j>y", "x>z", "y>z"), "j")
    log = FlowLog(flow).work("o", "a", "b").work("a", "j").work("b", "j")
    log.claim("j", "a=>j", "b=>j").hand("j", "a")
    log.add(HumanReplied("j", "begin with x", "me")).add(
        NodeClaimed("j", "j", FLOW, "reply", text="begin with x")
    )
    log.hand("j", "x")
    assert ids(log.state) == ["a", "x"]
    assert "j" in ids(log.work("a", "j").state)


def test_join_that_receives_a_rework_request_starts_without_all_inputs() -> None:
    flow = joining(graph("o>a", "o>b", "a>j", "b>j", "j>z"), "j")
    log = FlowLog(flow).work("o", "a", "b").work("a", "j").work("b", "j")
    log.claim("j", "a=>j", "b=>j").hand("j", "z", "a").claim("z", "j=>z").hand("z", "j")
    assert work_of(log.state, "j").delivered == ("z=>j",)


def test_search_for_ready_nodes_reads_the_graph_only_once() -> None:
    nodes = [f"n{n}" for n in range(300)]
    line = graph(*(f"{a}>{b}" for a, b in pairwise(nodes)))
    kept, edges = Counted(line.nodes), Counted(line.edges)
    log = FlowLog(msgspec.structs.replace(line, nodes=kept, edges=edges))
    for node, after in pairwise(nodes):
        assert ids(log.state) == [node]
        log.work(node, after)
    assert ids(log.state) == [nodes[-1]]
    assert (kept.reads, edges.reads) == (1, 1)
