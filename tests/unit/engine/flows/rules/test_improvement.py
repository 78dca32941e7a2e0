from __future__ import annotations

from perdure.engine.flows.rules.improvement import (
    FEEDBACK_ROLE,
    RoleWork,
    feedback_path,
    findings_path,
    next_step,
    order_by_graph,
    order_in_parallel,
    roles_to_look_back,
    writes_last,
)
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import (
    FeedbackAsked,
    FeedbackDecided,
    FindingsMade,
    FlowCompleted,
    ForwardPassClosed,
    HumanReplied,
    ImprovementChosen,
    ImprovementClaimed,
    ImprovementMode,
    ImprovementParked,
)
from tests.fakes.flow_log import FLOW, FlowLog, graph

WORK = graph(
    *("owner-intake>build", "build>review", "review>end"),
    **{"owner-intake": "owner", "build": "developer", "review": "reviewer", "end": "owner"},
)


def edges(order: Graph) -> set[str]:
    return {edge.key for edge in order.edges}


def looking_back(mode: ImprovementMode, order: Graph | None) -> FlowLog:
    log = FlowLog(WORK).work("owner-intake", "build").work("build", "review")
    log.work("review", "end").claim("end", "review=>end").add(ForwardPassClosed("end"))
    return log.add(ImprovementChosen(mode, "me", "improvement.yaml", order))


def done(log: FlowLog, role: str) -> FlowLog:
    return log.add(ImprovementClaimed(role, FLOW), FindingsMade(role, findings_path(role)))


def roles(log: FlowLog) -> list[str]:
    return [work.role for work in roles_to_look_back(log.state)]


def test_graph_order_of_reviews_reverses_the_order_of_work() -> None:
    assert edges(order_by_graph(WORK)) == {"developer=>owner", "reviewer=>developer"}


def test_role_of_several_nodes_gets_its_earliest_position_in_the_order() -> None:
    flow = graph("o>a", "a>b", "b>c", "c>z", o="owner", a="dev", b="qa", c="dev", z="owner")
    assert edges(order_by_graph(flow)) == {"dev=>owner", "qa=>dev"}


def test_omitted_node_does_not_break_the_order_of_its_neighbours() -> None:
    flow = graph("o>a", "o>b", "a>c", "b>c", "c>z", o="owner", a="dev", b="qa", c="dev", z="owner")
    assert edges(order_by_graph(flow)) == {"dev=>owner", "qa=>owner"}


def test_owner_reviews_after_all_other_roles_in_parallel_reviews() -> None:
    assert edges(order_in_parallel(WORK)) == {"developer=>owner", "reviewer=>owner"}
    log = looking_back("parallel", order_in_parallel(WORK))
    assert roles(log) == ["developer", "reviewer"]
    assert roles(done(log, "developer")) == ["reviewer"]
    assert roles_to_look_back(done(log, "reviewer").state) == (
        RoleWork(
            "owner",
            ("record/findings/developer-findings.md", "record/findings/reviewer-findings.md"),
        ),
    )


def test_flow_whose_only_role_is_the_owner_is_reviewed_by_owner() -> None:
    alone = graph("owner-intake>end", **{"owner-intake": "owner", "end": "owner"})
    assert order_in_parallel(alone).roles == ("owner",)
    assert edges(order_by_graph(alone)) == set()


def test_waiting_role_does_not_block_other_roles() -> None:
    log = looking_back("parallel", order_in_parallel(WORK))
    log.add(ImprovementClaimed("developer", FLOW), ImprovementParked("developer", "prompt-human"))
    assert roles(log) == ["reviewer"]
    log.add(HumanReplied("developer", "go on", "me"))
    assert roles_to_look_back(log.state)[0] == RoleWork("developer", (), "go on")


def test_feedback_question_is_asked_after_all_reviews_are_finished() -> None:
    log = looking_back("graph-based", order_by_graph(WORK))
    for role in ("reviewer", "developer", "owner"):
        assert roles(log) == [role]
        assert next_step(log.state) == "wait"
        done(log, role)
    assert roles(log) == []
    assert next_step(log.state) == "ask_for_feedback"
    log.add(FeedbackAsked(feedback_path(log.state)))
    assert next_step(log.state) == "wait"
    log.add(FeedbackDecided(is_granted=True, by="me"))
    assert roles(log) == [FEEDBACK_ROLE]
    done(log, FEEDBACK_ROLE)
    assert (roles(log), next_step(log.state)) == ([], "complete")


def test_flow_without_review_or_feedback_is_complete() -> None:
    log = looking_back("none", None)
    assert (roles(log), next_step(log.state)) == ([], "complete")
    assert next_step(log.add(FlowCompleted()).state) == "wait"
    log = looking_back("parallel", order_in_parallel(WORK))
    for role in ("reviewer", "developer", "owner"):
        done(log, role)
    log.add(FeedbackAsked("f.md"), FeedbackDecided(is_granted=False, by="me"))
    assert (roles(log), next_step(log.state)) == ([], "complete")


def test_findings_and_feedback_files_have_assigned_paths() -> None:
    log = FlowLog(WORK)
    assert findings_path("developer_2") == "findings/developer_2-findings.md"
    assert feedback_path(log.state) == f"a-society/feedback/project-flow-{FLOW}.md"
    assert writes_last("owner")
    assert not writes_last("developer")
