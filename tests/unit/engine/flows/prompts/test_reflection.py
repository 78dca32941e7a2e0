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


def test_a_role_is_told_where_to_write_and_what_those_before_it_found() -> None:
    work = RoleWork("build", ("findings/owner-findings.md",))
    told = reflection_message(
        looking_back(), work, CONTRACTS, {"findings/owner-findings.md": "It was slow."}
    )
    assert told.startswith("LOOK BACK TO findings/build-findings.md")
    assert "It was slow." in told


def test_the_feedback_is_written_from_all_findings_with_the_focus_of_the_flow() -> None:
    state, work = looking_back(), RoleWork(FEEDBACK_ROLE)
    assert read_findings(state, work) == ("record/findings/owner-findings.md",)
    told = reflection_message(
        state, work, CONTRACTS, {"record/findings/owner-findings.md": "Slow."}
    )
    assert "FEEDBACK TO a-society/feedback/project-flow-" in told
    assert "an ordinary flow" in told
    assert "Slow." in told


def test_a_person_s_reply_is_told_as_it_was_said() -> None:
    work = RoleWork("build", text="the blue one")
    assert reflection_message(looking_back(), work, CONTRACTS, {}) == "the blue one"
