"""The status of a node after each possible event."""

from __future__ import annotations

from perdure.apps.flow.picture.render import NodeStanding, along, is_blocked, overlaid, standing
from perdure.engine.flows.rules.flow_waits import FlowWait
from perdure.session.flows.kinds import HandoffAwaited, NodeParked
from perdure.session.ids import StreamId
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})
ASKED = (FlowWait("consent", "build", "May it write?", session=StreamId("f__build")),)


def stands(log: FlowLog) -> dict[str, NodeStanding]:
    return {node.id: standing(log.state, node) for node in log.state.graph.nodes}


def test_node_is_pending_then_active_then_completed() -> None:
    log = FlowLog(LINE)
    assert set(stands(log).values()) == {"pending"}
    log.claim("owner-intake")
    assert stands(log)["owner-intake"] == "active"
    log.hand("owner-intake", "build", artifact="plan.md")
    assert stands(log) == {"owner-intake": "completed", "build": "pending", "end": "pending"}
    assert along(log.state, "owner-intake", "build") == ("plan.md", True)


def test_last_node_is_pending_until_its_work_starts() -> None:
    log = FlowLog(LINE)
    log.work("owner-intake", "build").work("build", "end")
    assert stands(log)["end"] == "pending"
    log.claim("end", "build=>end")
    assert stands(log)["end"] == "active"


def test_both_nodes_of_a_backward_handoff_have_status_backward() -> None:
    log = FlowLog(LINE)
    log.work("owner-intake", "build").claim("build", "owner-intake=>build")
    log.hand("build", "owner-intake", artifact="why.md")
    assert stands(log) == {"owner-intake": "backward", "build": "backward", "end": "pending"}
    assert along(log.state, "build", "owner-intake") == ("why.md", True)


def test_waiting_node_shows_reason_of_wait() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    log.add(NodeParked("owner-intake", "owner", "prompt-human"))
    assert stands(log)["owner-intake"] == "awaiting human"
    waits = FlowLog(LINE).work("owner-intake", "build").claim("build", "owner-intake=>build")
    waits.add(HandoffAwaited("build"))
    assert stands(waits)["build"] == "backward"


def test_node_whose_role_asks_for_consent_waits_for_a_person() -> None:
    log = FlowLog(LINE).work("owner-intake", "build").claim("build", "owner-intake=>build")
    assert overlaid(log.state, ()) is log.state
    seen = overlaid(log.state, ASKED)
    assert seen.run.running_nodes == ()
    assert seen.run.awaiting_human_nodes["build"].reason == "consent"


def test_flow_is_blocked_when_all_running_nodes_wait_for_consent() -> None:
    log = FlowLog(LINE).work("owner-intake", "build")
    assert not is_blocked(log.state, ASKED)
    log.claim("build", "owner-intake=>build")
    assert is_blocked(log.state, ASKED)
    assert not is_blocked(log.state, ())
