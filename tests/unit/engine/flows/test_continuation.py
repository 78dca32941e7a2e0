"""What a flow can do next without a person."""

from __future__ import annotations

from perdure.engine.flows.continuation import can_continue, next_bodies
from perdure.session.flows.kinds import HandoffAwaited, NodeParked
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("o>a")


def test_new_flow_can_continue_and_takes_no_step_of_its_own() -> None:
    log = FlowLog(LINE)
    assert can_continue(log.state)
    assert next_bodies(log.state) == ()


def test_flow_with_a_node_at_work_can_continue() -> None:
    assert can_continue(FlowLog(LINE).claim("o").state)


def test_flow_whose_only_work_waits_for_a_handoff_parks_that_node() -> None:
    state = FlowLog(LINE).work("o", "a").claim("a", "o=>a").add(HandoffAwaited("a")).state
    (step,) = next_bodies(state)
    assert isinstance(step, NodeParked)
    assert step.node == "a"
    assert can_continue(state)
