"""How each entry changes a flow's state, beyond the tests of the rules."""

from __future__ import annotations

import pytest

from perdure.session.flows import kinds
from perdure.session.flows.fold import flow_state, state_after
from perdure.session.flows.run import AwaitingHuman, HumanInput, ImprovementPhase
from perdure.session.notes import SideBody
from tests.fakes.flow_log import FLOW, FlowLog, entry_of, graph

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})
WHEN = "2023-11-14T22:13:20.000Z"


def phase(log: FlowLog) -> ImprovementPhase:
    found = log.run.improvement_phase
    assert found is not None
    return found


def closed() -> FlowLog:
    log = FlowLog(LINE).work("owner-intake", "a").work("a", "end").claim("end", "a=>end")
    return log.add(kinds.ForwardPassClosed("end"))


def test_unrelated_entry_changes_only_the_head_of_the_flow() -> None:
    log = FlowLog(LINE)
    before = log.run
    log.add(kinds.HandoffAwaited("a"))
    other = FlowLog(LINE)
    other.state = flow_state(
        [
            (
                entry_of(0, started := kinds.FlowStarted("project", "/w", "/w/record", LINE, ())),
                started,
            ),
            (entry_of(1, kinds.FlowCompleted()), object()),
        ]
    )
    assert (other.run, other.state.head) == (before, 1)


def test_node_waits_for_person_and_resumes_with_answer() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    log.add(kinds.NodeParked("owner-intake", "owner", "prompt-human", "which one?"))
    assert log.run.running_nodes == ()
    waiting = AwaitingHuman("owner", "prompt-human", "which one?")
    assert log.run.awaiting_human_nodes == {"owner-intake": waiting}
    log.add(kinds.HumanReplied("owner-intake", "the first", "me"))
    assert log.run.pending_human_inputs == {"owner-intake": HumanInput("the first", WHEN)}
    log.add(kinds.NodeClaimed("owner-intake", "owner", FLOW, "reply", text="the first"))
    assert log.run.running_nodes == ("owner-intake",)
    assert not log.run.awaiting_human_nodes
    assert not log.run.pending_human_inputs


def test_stop_request_is_removed_after_the_node_stops() -> None:
    log = FlowLog(LINE).claim("owner-intake").add(kinds.StopAsked("owner", "me"))
    assert log.state.stopping == ("owner",)
    log.add(kinds.NodeParked("owner-intake", "owner", "autonomous-abort"))
    assert log.state.stopping == ()
    log = FlowLog(LINE).claim("owner-intake").add(kinds.StopAsked("owner-intake", "me"))
    assert log.hand("owner-intake", "a").state.stopping == ()


def test_node_continues_after_waiting_for_consent() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    log.add(
        kinds.NodeParked("owner-intake", "owner", "consent"), kinds.NodeContinued("owner-intake")
    )
    assert log.run.running_nodes == ("owner-intake",)
    assert not log.run.awaiting_human_nodes


def test_node_waits_for_a_person_after_a_declined_handoff() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    targets = (kinds.HandoffTarget("a", "x.md"),)
    log.add(kinds.HandoffStaged("owner-intake", "owner", targets))
    assert log.run.pending_handoff_approvals == {"owner-intake": targets}
    log.add(kinds.HandoffDeclined("owner-intake", "owner", "me", "not yet"))
    assert log.run.pending_handoff_approvals == {}
    assert log.run.awaiting_human_nodes["owner-intake"].reason == "prompt-human"
    assert log.run.history_handoff == {}


def test_history_contains_each_artifact_once() -> None:
    log = FlowLog(LINE).claim("owner-intake").hand("owner-intake", "a", artifact="x.md")
    log.claim("a", "owner-intake=>a").hand("a", "owner-intake", artifact="y.md")
    assert log.run.completed_handoffs == ()
    assert log.run.history_handoff == {
        "owner-intake=>a": ("x.md",),
        "a=>owner-intake": ("y.md",),
    }
    assert log.run.receiving_handoff == {"a=>owner-intake": ("y.md",)}


def test_consent_grants_are_stored_until_they_are_revoked() -> None:
    log = FlowLog(LINE)
    log.add(kinds.ConsentChanged("me", "partial-access", "bash", "make test"))
    log.add(kinds.ConsentChanged("me", tool="mcp", command="mcp__git__push"))
    consent = log.run.consent_state
    assert consent.mode == "partial-access"
    assert consent.bash.allowed_commands["make test"].granted_at == WHEN
    assert consent.mcp.allowed_tools["mcp__git__push"].tool_name == "mcp__git__push"
    log.add(kinds.ConsentChanged("me", tool="bash", command="make test", is_revoked=True))
    assert log.run.consent_state.bash.allowed_commands == {}


def test_handoff_of_a_node_removes_the_repair_request() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    repair = kinds.RepairAsked("owner-intake", "owner", "missing_block", "none", "write one", 2)
    assert log.add(repair).state.repairs == {"owner-intake": repair}
    assert log.hand("owner-intake", "a").state.repairs == {}


@pytest.mark.parametrize(
    "end",
    [
        kinds.HandoffAwaited("owner-intake"),
        kinds.HandoffStaged("owner-intake", "owner", ()),
        kinds.NodeParked("owner-intake", "owner", "prompt-human"),
        kinds.ForwardPassClosed("owner-intake"),
    ],
)
def test_valid_signal_of_a_role_clears_the_repair_request(end: SideBody) -> None:
    log = FlowLog(LINE).claim("owner-intake")
    repair = kinds.RepairAsked("owner-intake", "owner", "missing_block", "none", "write one", 2)
    assert log.add(repair, end).state.repairs == {}


@pytest.mark.parametrize(
    "end", [kinds.ImprovementParked("owner", "prompt-human"), kinds.FindingsMade("owner", "f.md")]
)
def test_finished_review_clears_the_repair_request(end: SideBody) -> None:
    log = FlowLog(LINE).claim("owner-intake").add(kinds.ForwardPassClosed("owner-intake"))
    repair = kinds.RepairAsked("owner", "owner", "missing_block", "none", "write one", 2)
    assert log.add(repair).state.repairs == {"owner": repair}
    assert log.add(end).state.repairs == {}


def test_workspace_and_graph_of_a_flow_can_change() -> None:
    log = FlowLog(LINE).add(kinds.WorkspaceBound("/new", "/new/record"))
    assert (log.run.workspace_root, log.run.record_folder_path) == ("/new", "/new/record")
    other = graph("owner-intake>b", **{"owner-intake": "owner"})
    assert log.add(kinds.WorkflowChanged(other)).state.graph == other


def test_closed_flow_waits_for_the_choice_of_a_review_mode() -> None:
    log = closed()
    assert log.run.status == "awaiting_improvement_choice"
    assert phase(log) == ImprovementPhase("awaiting_choice")
    log.add(kinds.ImprovementChosen("none", "me"), kinds.FlowCompleted())
    assert (log.run.status, phase(log).status) == ("completed", "skipped")


def test_flow_with_one_role_gets_a_single_role_review() -> None:
    alone = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner_2"})
    log = FlowLog(alone).work("owner-intake", "end").claim("end")
    assert phase(log.add(kinds.ForwardPassClosed("end"))).single_role


def test_improvement_entries_update_the_state_of_the_flow() -> None:
    log = closed().add(kinds.ImprovementChosen("parallel", "me", "improvement.yaml", LINE))
    assert (log.run.status, phase(log).status) == ("running", "running")
    log.add(kinds.ImprovementClaimed("a", FLOW))
    assert phase(log).running_roles == ("a",)
    log.add(kinds.ImprovementParked("a", "prompt-human"), kinds.HumanReplied("a", "go", "me"))
    assert phase(log).pending_human_inputs == {"a": HumanInput("go", WHEN)}
    log.add(kinds.ImprovementClaimed("a", FLOW, "go"))
    assert not phase(log).awaiting_human_roles
    assert not phase(log).pending_human_inputs
    log.add(kinds.FindingsMade("a", "findings/a-findings.md"))
    assert phase(log).completed_roles == ("a",)
    log.add(kinds.FeedbackAsked("feedback.md"))
    assert log.run.status == "awaiting_feedback_consent"
    assert phase(log).feedback_consent == "pending"
    log.add(kinds.FeedbackDecided(is_granted=True, by="me"))
    assert (log.run.status, phase(log).feedback_consent) == ("running", "granted")
    log.add(kinds.FlowCompleted())
    assert (log.run.status, phase(log).status) == ("completed", "completed")


def test_flow_state_contains_session_and_model_of_a_role() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    log.add(kinds.RoleConfigured("a", "echo:hi", skills=("search",)))
    assert log.state.sessions == {"owner": f"{FLOW}__owner"}
    assert log.state.roles["a"].model == "echo:hi"


def test_undelivered_handoffs_are_kept_until_they_are_withdrawn() -> None:
    log = FlowLog(LINE).claim("owner-intake").hand("owner-intake", "a", artifact="one.md")
    log.claim("owner-intake").hand("owner-intake", "a", artifact="two.md")
    assert log.run.receiving_handoff == {"owner-intake=>a": ("one.md", "two.md")}
    log.claim("owner-intake", superseded=("owner-intake=>a",))
    assert (log.run.receiving_handoff, log.run.completed_handoffs) == ({}, ())
    assert log.run.history_handoff == {"owner-intake=>a": ("one.md", "two.md")}


def test_edge_lookup_is_fast_for_many_artifacts() -> None:
    comparisons = 0

    class Told(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal comparisons
            comparisons += 1
            return super().__eq__(other)

    entries = [entry_of(0, started := kinds.FlowStarted("p", "/w", "/w/r", LINE, ("end",)))]
    bodies: list[SideBody] = [started]
    for n in range(2000):
        handed = kinds.HandoffTarget("a", Told(f"{n:04}.md"), Told(f"{n:04}"))
        bodies.append(kinds.HandoffMade("owner-intake", (handed,)))
        entries.append(entry_of(n + 1, bodies[-1]))
    at_once = flow_state(zip(entries, bodies, strict=True))
    assert comparisons == 0
    one_by_one = flow_state([(entries[0], bodies[0])])
    for entry, body in zip(entries[1:], bodies[1:], strict=True):
        one_by_one = state_after(one_by_one, entry, body)
    assert comparisons == 0
    assert at_once == one_by_one
    assert len(at_once.digests["owner-intake=>a"]) == 2000
    assert at_once.run.history_handoff["owner-intake=>a"][-1] == "1999.md"


def test_flow_settings_written_by_another_user_are_not_applied() -> None:
    log = FlowLog(LINE).add(kinds.RunSettings("p:m", commands=("make *",)))
    theirs = kinds.RunSettings("p:other")
    state = state_after(log.state, entry_of(log.state.head + 1, theirs), theirs, is_own=False)
    assert state.settings == kinds.RunSettings("p:m", commands=("make *",))
