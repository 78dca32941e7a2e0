from __future__ import annotations

from perdure.engine.flows.prompts.reflection import read_findings, reflection_message
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE, RoleWork
from perdure.engine.flows.rules.people import choose_improvement
from perdure.session.flows.kinds import FindingsMade, ForwardPassClosed
from perdure.session.flows.run import FlowState
from tests.fakes.flow_contracts import CONTRACTS
from tests.fakes.flow_log import FlowLog, graph


def looking_back() -> FlowState:
    line = graph("owner-intake>build", "build>end", **{"owner-intake": "owner"}, end="owner")
    log = FlowLog(line).add(ForwardPassClosed("end"))
    log.add(choose_improvement(log.state, "graph-based", "me"))
    return log.add(FindingsMade("owner", "findings/owner-findings.md")).state


def test_role_review_message_contains_path_and_earlier_findings() -> None:
    work = RoleWork("build", ("findings/owner-findings.md",))
    told = reflection_message(
        looking_back(), work, CONTRACTS, {"findings/owner-findings.md": "It was slow."}
    )
    assert told.startswith("LOOK BACK TO findings/build-findings.md")
    assert "It was slow." in told


def test_feedback_message_contains_all_findings_and_focus_of_flow() -> None:
    state, work = looking_back(), RoleWork(FEEDBACK_ROLE)
    assert read_findings(state, work) == ("record/findings/owner-findings.md",)
    told = reflection_message(
        state, work, CONTRACTS, {"record/findings/owner-findings.md": "Slow."}
    )
    assert "FEEDBACK TO a-society/feedback/project-flow-" in told
    assert "an ordinary flow" in told
    assert "Slow." in told


def test_reply_of_a_person_is_inserted_unchanged() -> None:
    work = RoleWork("build", text="the blue one")
    assert reflection_message(looking_back(), work, CONTRACTS, {}) == "the blue one"
