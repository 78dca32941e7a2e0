"""The nodes that must still make a handoff, updated for each entry."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from perdure.engine.flows.rules.ready_nodes import runnable
from perdure.engine.flows.rules.structure import faults_of_edit
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.flows.kinds import FlowStarted, HandoffMade, HandoffTarget, WorkflowChanged
from tests.fakes.flow_log import FlowLog, graph

looks: list[str] = []


class Watched(Graph, frozen=True):
    """A graph that records the nodes for which it was queried."""

    def keys_from(self, id: str) -> frozenset[str]:
        looks.append(id)
        return super().keys_from(id)


def test_adding_a_handoff_reads_the_edges_of_one_node() -> None:
    ids = [f"n{n}" for n in range(300)]
    edges = tuple(FlowEdge(a, b) for a, b in pairwise(ids))
    log = FlowLog(Watched("line", tuple(FlowNode(id, "r") for id in ids), edges))
    for edge in edges:
        log.claim(edge.source)
        looks.clear()
        log.add(HandoffMade(edge.source, (HandoffTarget(edge.target, f"{edge.source}.md"),)))
        assert set(looks) == {edge.source}
        assert len(looks) == 2
    assert len(log.run.visited_node_ids) == 299


def test_missing_and_withdrawn_handoffs_of_a_node_must_still_be_made() -> None:
    log = FlowLog(graph("o>a", "o>b")).claim("o").hand("o", "a")
    assert [node.id for node in log.state.owing] == ["o"]
    log.hand("o", "b")
    assert log.state.owing == ()
    log.claim("o", superseded=("o=>a",))
    assert log.state.owing_ids == {"o"}


def test_handoff_that_was_sent_back_must_be_made_again() -> None:
    log = FlowLog(graph("o>a")).claim("o").hand("o", "a").claim("a", "o=>a").hand("a", "o")
    assert log.state.owing_ids == {"o"}


def test_edge_added_to_the_workflow_requires_a_handoff() -> None:
    log = FlowLog(graph("o>a")).claim("o").hand("o", "a")
    assert not log.state.owing_ids
    log.add(WorkflowChanged(graph("o>a", "o>b")))
    assert log.state.owing_ids == {"o"}


def test_handoff_along_an_edge_removed_later_is_no_longer_owed() -> None:
    roles = {"owner-intake": "owner", "end": "owner"}
    before = graph("owner-intake>a", "owner-intake>b", "a>end", "b>end", **roles)
    after = graph("owner-intake>a", "a>end", **roles)
    log = FlowLog(before).claim("owner-intake").hand("owner-intake", "a")
    assert log.state.owing_ids == {"owner-intake"}
    assert not faults_of_edit(log.run, before, after)
    log.add(WorkflowChanged(after))
    assert not log.state.owing_ids
    assert [(work.node.id, work.cause) for work in runnable(log.state)] == [("a", "handoff")]


def test_flow_that_just_started_owes_no_handoff_yet() -> None:
    started = FlowStarted("p", "/w", "/w/r", graph("o>a"), ("o",))
    assert not FlowLog(started.graph).state.owing_ids
    assert msgspec.json.encode(FlowLog(started.graph).run.visited_node_ids) == b"[]"
