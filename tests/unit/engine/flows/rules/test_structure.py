"""Graphs that can run, and allowed edits of the graph of a running flow."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from perdure.engine.flows.rules.structure import cycle_in, edge_faults, faults_of, faults_of_edit
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import HandoffAwaited, HandoffTarget, NodeParked
from tests.fakes.flow_log import FlowLog, graph

GOOD = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})


def test_valid_graph_has_no_faults() -> None:
    assert faults_of(GOOD) == []
    assert faults_of(Graph("alone", (FlowNode("owner-intake", "owner"),))) == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (Graph("none", ()), "a workflow needs at least one node"),
        (graph("a>b", a="owner", b="owner"), "the first node is 'a'; it must be 'owner-intake'"),
        (
            graph("owner-intake>a", **{"owner-intake": "owner"}),
            "node 'a' hands over to nobody, so its role must be 'owner'",
        ),
        (
            graph("owner-intake>a", "b>a", **{"owner-intake": "owner", "a": "owner"}),
            "nothing is handed to node 'b'; only 'owner-intake' may begin the work",
        ),
        (
            graph("owner-intake>a", "a>b", "b>a", **{"owner-intake": "owner"}),
            "the edges go round in a circle: a => b => a",
        ),
        (
            Graph("g", (FlowNode("owner-intake", "Owner!"),)),
            (
                "node 'owner-intake' has the role 'Owner!': use lowercase words joined by hyphens, "
                "perhaps with _1, _2 for several of one role"
            ),
        ),
        (
            Graph("g", (FlowNode("owner-intake", "owner"),), (FlowEdge("owner-intake", "x"),)),
            "the edge owner-intake=>x names 'x', which is no node",
        ),
        (
            Graph("g", (FlowNode("n", "owner"), FlowNode("n", "owner"))),
            "two nodes are called 'n'",
        ),
        (
            Graph("g", (FlowNode("owner-intake", "a-society-feedback"),)),
            "node 'owner-intake' has the role 'a-society-feedback', which is perdure's own",
        ),
    ],
)
def test_invalid_graph_has_faults(bad: Graph, fault: str) -> None:
    assert fault in faults_of(bad)


def test_cycle_in_a_graph_is_reported() -> None:
    assert cycle_in(graph("o>a", "o>b", "a>z", "b>z")) == ()
    assert list(cycle_in(graph("o>a", "a>b", "b>c", "c>a"))) == ["a", "b", "c", "a"]


def test_deep_graph_is_checked_without_recursion() -> None:
    ids = [f"n{number}" for number in range(1_200)]
    nodes = tuple(FlowNode(id, "owner") for id in ids)
    edges = tuple(FlowEdge(a, b) for a, b in pairwise(ids))
    assert cycle_in(Graph("deep", nodes, edges)) == ()


def test_node_that_has_run_cannot_be_removed() -> None:
    log = FlowLog(GOOD).work("owner-intake", "a")
    smaller = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner"})
    assert faults_of_edit(log.run, GOOD, smaller) == [
        "node 'a' has worked or waits, and cannot be taken away",
        "the handoff owner-intake=>a was made, so its edge must stay",
        "the handoff owner-intake=>a has not been delivered, so its edge must stay",
    ]


def test_nodes_can_be_added_and_unused_nodes_can_be_removed() -> None:
    log = FlowLog(GOOD).claim("owner-intake")
    names = {"owner-intake": "owner", "end": "owner"}
    assert faults_of_edit(log.run, GOOD, graph("owner-intake>b", "b>c", "c>end", **names)) == []


def test_running_node_must_keep_its_role() -> None:
    log = FlowLog(GOOD).work("owner-intake", "a").claim("a", "owner-intake=>a")
    renamed = tuple(
        msgspec.structs.replace(node, role="b") if node.id == "a" else node for node in GOOD.nodes
    )
    recast = msgspec.structs.replace(GOOD, nodes=renamed)
    assert faults_of_edit(log.run, GOOD, recast) == [
        "node 'a' is at work as 'a' and must keep that role"
    ]
    assert faults_of_edit(log.hand("a", "end").run, GOOD, recast) == []


def test_waiting_node_must_keep_its_role_or_edge() -> None:
    log = FlowLog(GOOD).work("owner-intake", "a").claim("a", "owner-intake=>a")
    log.add(NodeParked("a", "a", "prompt-human"))
    renamed = tuple(
        msgspec.structs.replace(node, role="b") if node.id == "a" else node for node in GOOD.nodes
    )
    assert faults_of_edit(log.run, GOOD, msgspec.structs.replace(GOOD, nodes=renamed)) == [
        "node 'a' waits for a person as 'a' and must keep that role"
    ]
    waiting = FlowLog(GOOD).claim("owner-intake").add(HandoffAwaited("end"))
    without = graph("owner-intake>a", "a>x", **{"owner-intake": "owner", "x": "owner"})
    assert "node 'end' has worked or waits, and cannot be taken away" in faults_of_edit(
        waiting.run, GOOD, without
    )


def test_handoff_is_possible_only_between_neighbours_in_both_directions() -> None:
    assert edge_faults(GOOD, "a", "end") is None
    assert edge_faults(GOOD, "end", "a") is None
    assert edge_faults(GOOD, "owner-intake", "end") == (
        "owner-intake=>end is no edge; owner-intake may hand over to: a"
    )


def test_edge_with_handoff_waiting_for_approval_cannot_be_removed() -> None:
    names = {"owner-intake": "owner", "b": "dev", "end": "owner"}
    before = graph("owner-intake>b", "b>end", "owner-intake>end", **names)
    after = graph("owner-intake>b", "b>end", **names)
    run = msgspec.structs.replace(
        FlowLog(before).run,
        pending_handoff_approvals={"owner-intake": (HandoffTarget("end", "a.md"),)},
    )
    assert faults_of_edit(run, before, after) == [
        "the handoff owner-intake=>end waits to be approved, so its edge must stay"
    ]
