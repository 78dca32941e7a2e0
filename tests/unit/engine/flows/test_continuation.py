"""Steps that a flow can take next without a person."""

from __future__ import annotations

from perdure.engine.flows.continuation import can_continue, next_bodies
from perdure.session.flows.kinds import HandoffAwaited, NodeParked
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("o>a")


def test_new_flow_can_continue_without_an_entry() -> None:
    log = FlowLog(LINE)
    assert can_continue(log.state)
    assert next_bodies(log.state) == ()


def test_flow_with_running_node_can_continue() -> None:
    assert can_continue(FlowLog(LINE).claim("o").state)


def test_node_without_a_possible_handoff_waits_for_a_person() -> None:
    state = FlowLog(LINE).work("o", "a").claim("a", "o=>a").add(HandoffAwaited("a")).state
    (step,) = next_bodies(state)
    assert isinstance(step, NodeParked)
    assert step.node == "a"
    assert can_continue(state)
