from __future__ import annotations

from perdure.engine.flows.rules.handoffs import Artifact
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE
from perdure.engine.flows.rules.node_end import MOST_REPAIRS, Ended
from perdure.engine.flows.rules.reflection import assigned_path, role_finished
from perdure.session.flows.kinds import FindingsMade, ImprovementParked, RepairAsked
from perdure.session.notes import SideBody
from tests.fakes.flow_log import FLOW, FlowLog, graph

STATE = FlowLog(graph("o>z", z="owner")).state
PATH = "findings/o-findings.md"


def finished(yaml: str, role: str = "o", problem: str | None = None, *unhealthy: str) -> SideBody:
    path = assigned_path(STATE, role)
    text = f"```handoff\n{yaml}\n```"
    found = {path: Artifact(path, "d", problem)}
    return role_finished(STATE, role, Ended("stop", text), found, unhealthy)


def code(body: SideBody) -> str:
    assert isinstance(body, RepairAsked)
    return body.code


def test_findings_at_the_assigned_path_complete_a_role_review() -> None:
    done = FindingsMade("o", PATH, "d")
    assert finished(f"type: meta-analysis-complete\nfindings_path: {PATH}") == done
    assert finished(f"type: meta-analysis-complete\nfindings_path: ./{PATH}") == done


def test_feedback_must_be_at_assigned_path() -> None:
    path = f"a-society/feedback/project-flow-{FLOW}.md"
    yaml = f"type: backward-pass-complete\nartifact_path: {path}"
    assert finished(yaml, FEEDBACK_ROLE) == FindingsMade(FEEDBACK_ROLE, path, "d")


def test_unusable_signal_of_a_role_review_causes_a_repair() -> None:
    right = f"type: meta-analysis-complete\nfindings_path: {PATH}"
    assert code(finished("type: meta-analysis-complete\nfindings_path: x.md")) == (
        "artifact_unavailable"
    )
    assert code(finished(right, problem="no such file")) == "artifact_unavailable"
    assert code(finished("type: forward-pass-closed")) == "unknown_signal_type"
    assert code(finished("type: backward-pass-complete\nartifact_path: f")) == "unknown_signal_type"
    assert code(finished("[")) == "yaml_parse"
    assert code(finished(right, "o", None, "the index names no file")) == "runtime_health"


def test_role_review_with_a_question_or_stop_makes_the_role_wait() -> None:
    assert finished("type: prompt-human") == ImprovementParked("o", "prompt-human")
    stopped = role_finished(STATE, "o", Ended("aborted"), {})
    assert stopped == ImprovementParked("o", "autonomous-abort", "its turn ended as aborted")
    denied = role_finished(STATE, "o", Ended("aborted", is_denied=True), {})
    assert isinstance(denied, ImprovementParked)
    assert denied.reason == "consent-denied"


def test_truncated_answers_cause_limited_number_of_repairs() -> None:
    assert code(role_finished(STATE, "o", Ended("length"), {})) == "output_limit"
    log = FlowLog(graph("o>z", z="owner"))
    for _ in range(MOST_REPAIRS):
        log.add(role_finished(log.state, "o", Ended("stop", "done"), {}))
    body = role_finished(log.state, "o", Ended("stop", "done"), {})
    assert isinstance(body, ImprovementParked)
    assert body.reason == "autonomous-abort"
