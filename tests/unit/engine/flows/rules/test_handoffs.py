"""Handoffs: accepted, staged for approval, or rejected with a reason."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.flows.rules.handoffs import Artifact, decide_handoff
from perdure.engine.flows.rules.signals import Fault
from perdure.session.flows.kinds import HandoffMade, HandoffStaged, HandoffTarget
from tests.fakes.flow_log import FlowLog, graph


def decided(
    log: FlowLog, node: str, *targets: str, path: str = "new.md", digest: str | None = None
) -> HandoffMade | HandoffStaged | Fault:
    asked = tuple(HandoffTarget(target, path) for target in targets)
    return decide_handoff(log.state, node, asked, {path: Artifact(path, digest)})


LINE = graph("o>a", "a>z")


def test_handoff_to_neighbours_is_made_with_canonical_paths() -> None:
    log = FlowLog(LINE).claim("o")
    found = {"./x.md": Artifact("x.md", "d1")}
    made = decide_handoff(log.state, "o", (HandoffTarget("a", "./x.md"),), found)
    assert made == HandoffMade("o", (HandoffTarget("a", "x.md", "d1"),))


def test_wrong_target_is_reported_before_a_missing_artifact() -> None:
    missing = {"no.md": Artifact("no.md", problem="no such file")}
    log = FlowLog(LINE).claim("o")
    fault = decide_handoff(log.state, "o", (HandoffTarget("x", "no.md"),), missing)
    assert isinstance(fault, Fault)
    assert fault.code == "invalid_transition"
    assert "no.md" not in fault.message
    fault = decide_handoff(log.state, "o", (HandoffTarget("a", "no.md"),), missing)
    assert isinstance(fault, Fault)
    assert fault.code == "artifact_unavailable"


def test_artifact_that_was_handed_over_before_is_rejected() -> None:
    log = FlowLog(LINE).claim("o").hand("o", "a", artifact="new.md").claim("a", "o=>a")
    fault = decided(log, "a", "z")
    assert isinstance(fault, Fault)
    assert "handed over before" in fault.summary


def test_repeated_content_on_the_same_edge_is_rejected() -> None:
    log = FlowLog(LINE).claim("o")
    log.add(HandoffMade("o", (HandoffTarget("a", "one.md", "d1"),)))
    log.claim("a", "o=>a").hand("a", "o").claim("o", "a=>o")
    again = decided(log, "o", "a", digest="d1")
    assert isinstance(again, Fault)
    elsewhere = decided(log, "a", "z", digest="d1")
    assert isinstance(elsewhere, HandoffMade)
    assert elsewhere.warnings == ("new.md says the same as what went along o=>a",)


def test_artifact_goes_to_each_node_at_most_once() -> None:
    log = FlowLog(graph("o>a", "o>b", "a>z", "b>z")).claim("o")
    assert isinstance(decided(log, "o", "a", "b"), HandoffMade)
    fault = decided(log, "o", "a", "a")
    assert isinstance(fault, Fault)
    assert "named twice" in fault.summary


def test_error_for_a_handoff_to_a_non_neighbour_lists_the_neighbours() -> None:
    log = FlowLog(graph("o>a", "a>b", "b>z")).claim("o")
    fault = decided(log, "o", "b")
    assert isinstance(fault, Fault)
    assert fault.summary.endswith("o=>b is no edge; o may hand over to: a")


def test_handoff_that_was_not_received_cannot_be_returned() -> None:
    log = FlowLog(graph("o>a", "o>b", "a>b", "b>z")).work("o", "b").claim("b", "o=>b")
    before = log.state
    fault = decided(log, "b", "a")
    assert isinstance(fault, Fault)
    assert fault.code == "invalid_transition"
    assert log.state == before


@pytest.mark.parametrize("targets", [["z"], ["z", "o"]])
def test_forward_handoff_that_needs_approval_is_staged(targets: list[str]) -> None:
    nodes = tuple(msgspec.structs.replace(n, has_human=n.id == "a") for n in LINE.nodes)
    log = FlowLog(msgspec.structs.replace(LINE, nodes=nodes)).work("o", "a").claim("a", "o=>a")
    staged = decided(log, "a", *targets)
    assert isinstance(staged, HandoffStaged)
    log.add(staged)
    assert "z" not in log.run.visited_node_ids
    assert log.run.awaiting_human_nodes["a"].reason == "handoff-approval"
    log.add(HandoffMade("a", staged.targets, approved_by="me"))
    assert log.run.pending_handoff_approvals == {}
    assert "a=>z" in log.run.receiving_handoff


def test_backward_handoff_needs_no_approval() -> None:
    nodes = tuple(msgspec.structs.replace(n, has_human=n.id == "a") for n in LINE.nodes)
    log = FlowLog(msgspec.structs.replace(LINE, nodes=nodes)).work("o", "a").claim("a", "o=>a")
    back = decided(log, "a", "o")
    assert isinstance(back, HandoffMade)
