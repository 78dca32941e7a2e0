from __future__ import annotations

from perdure.engine.flows.rules.flow_waits import waits_in
from perdure.engine.flows.rules.people import choose_improvement
from perdure.session.flows.kinds import (
    FeedbackAsked,
    ForwardPassClosed,
    HandoffStaged,
    HandoffTarget,
    HumanReplied,
    ImprovementParked,
    NodeParked,
)
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner"}, end="owner")


def test_waiting_node_shows_reason_until_answered() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    log.add(NodeParked("owner-intake", "owner", "autonomous-abort", "no answer came"))
    (waiting,) = waits_in(log.state)
    assert (waiting.topic, waiting.target) == ("autonomous-abort", "owner-intake")
    assert waiting.text.endswith("waits for a reply: no answer came")
    assert waits_in(log.add(HumanReplied("owner-intake", "go on", "me")).state) == ()


def test_question_about_a_staged_handoff_shows_artifact_and_target() -> None:
    log = FlowLog(LINE).claim("owner-intake")
    log.add(HandoffStaged("owner-intake", "owner", (HandoffTarget("build", "plan.md"),)))
    (waiting,) = waits_in(log.state)
    assert waiting.choices == ("approve", "decline")
    assert waiting.text.endswith("wants to hand over: plan.md to build")


def test_person_is_asked_for_review_mode_and_then_for_feedback() -> None:
    log = FlowLog(LINE).add(ForwardPassClosed("end"))
    assert waits_in(log.state)[0].choices == ("graph-based", "parallel", "none")
    log.add(choose_improvement(log.state, "parallel", "me"))
    log.add(ImprovementParked("build", "prompt-human"))
    assert [(w.topic, w.target) for w in waits_in(log.state)] == [("prompt-human", "build")]
    log.add(FeedbackAsked("a-society/feedback/x.md"))
    assert waits_in(log.state)[-1].text == "Shall feedback be written to a-society/feedback/x.md?"


def test_graph_based_review_is_not_a_choice_for_one_role() -> None:
    alone = FlowLog(graph(**{"owner-intake": "owner"})).add(ForwardPassClosed("owner-intake"))
    assert waits_in(alone.state)[0].choices == ("parallel", "none")
