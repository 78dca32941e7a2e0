"""The effect of a finished turn on a document's flow, and the completion of the flow."""

from __future__ import annotations

import pytest

from perdure.engine.flows.documents.document_flow import bind_document, graph_of
from perdure.engine.flows.documents.turn_end import (
    answer_path,
    digest_of,
    input_path,
    is_done,
    last_bodies,
    task_finished,
)
from perdure.engine.flows.rules.handoffs import Artifact
from perdure.engine.flows.rules.node_end import Ended
from perdure.engine.flows.rules.ready_nodes import runnable
from perdure.session.flows.kinds import (
    FlowCompleted,
    HandoffMade,
    HandoffTarget,
    HumanReplied,
    NodeClaimed,
    NodeParked,
    NodePassed,
    StopAsked,
)
from perdure.session.ids import StreamId
from tests.fakes.documents import document
from tests.fakes.flow_log import FLOW, FlowLog

ANSWER = Artifact("outputs/a.md", "sha256-1")


def begun(*edges: str) -> FlowLog:
    workflow = document(*edges)
    graph = graph_of(workflow)
    log = FlowLog(graph, start=()).add(bind_document(workflow, {}, {}, {}))
    targets = tuple(HandoffTarget(t, "inputs/in.json", "sha256-0") for t in graph.successors("in"))
    return log.add(NodePassed("in", targets))


def test_answer_of_a_node_is_handed_to_all_its_successors() -> None:
    log = begun("in>a", "a>b", "a>out", "b>out").claim("a", "in=>a")
    body = task_finished(log.state, "a", Ended("stop", "hi"), ANSWER)
    targets = tuple(HandoffTarget(t, "outputs/a.md", "sha256-1") for t in ("b", "out"))
    assert body == HandoffMade("a", targets)
    log.add(body)
    assert [work.node.id for work in runnable(log.state)] == ["b"]
    assert is_done(log.state, "a")
    assert digest_of(log.state, "a") == "sha256-1"
    assert digest_of(log.state, "b") is None
    assert last_bodies(log.state) == ()


@pytest.mark.parametrize(
    ("ended", "answer", "reason", "detail"),
    [
        (Ended("length", "h"), ANSWER, "autonomous-abort", "cut off"),
        (Ended("error", "", "no key"), None, "autonomous-abort", "no key"),
        (Ended("aborted"), None, "autonomous-abort", "its turn ended as aborted"),
        (Ended("stop"), None, "autonomous-abort", "its answer has no text"),
        (Ended("aborted", "", "ana denied x", is_denied=True), None, "consent-denied", "ana"),
        (Ended("stop", "h"), Artifact("p", problem="gone"), "autonomous-abort", "gone"),
    ],
)
def test_node_whose_turn_has_no_answer_waits_for_a_person(
    ended: Ended, answer: Artifact | None, reason: str, detail: str
) -> None:
    log = begun("in>a", "a>out").claim("a", "in=>a")
    body = task_finished(log.state, "a", ended, answer)
    assert isinstance(body, NodeParked)
    assert (body.reason, detail in (body.detail or "")) == (reason, True)
    log.add(body)
    assert not is_done(log.state, "a")
    assert last_bodies(log.state) == ()


def test_stop_request_overrides_the_answer_of_a_document_node() -> None:
    log = begun("in>a", "a>out").claim("a", "in=>a").add(StopAsked("a", "me"))
    assert isinstance(task_finished(log.state, "a", Ended("stop", "hi"), ANSWER), NodeParked)


def test_end_of_the_last_node_completes_the_flow() -> None:
    log = begun("in>a", "a>out", "in>out2").claim("a", "in=>a")
    assert last_bodies(log.state) == ()
    log.add(task_finished(log.state, "a", Ended("stop", "hi"), ANSWER))
    assert last_bodies(log.state) == (NodePassed("out"), NodePassed("out2"), FlowCompleted())
    log.add(*last_bodies(log.state))
    assert log.run.status == "completed"
    assert log.run.receiving_handoff == {}
    assert last_bodies(log.state) == ()


def test_flow_without_agent_nodes_is_completed() -> None:
    log = begun("in>out")
    assert runnable(log.state) == ()
    assert last_bodies(log.state) == (NodePassed("out"), FlowCompleted())


def test_document_rules_do_not_affect_a_flow_of_roles() -> None:
    log = FlowLog(graph_of(document("in>a", "a>out")))
    assert last_bodies(log.state) == ()


def test_files_of_the_record_are_named_after_their_nodes() -> None:
    assert (answer_path("a"), input_path("in")) == ("outputs/a.md", "inputs/in.json")


def test_reply_of_a_person_replaces_an_unusable_prompt() -> None:
    log = begun("in>a", "a>out").add(NodeParked("a", "helper", "autonomous-abort", "no file"))
    (work,) = runnable(log.add(HumanReplied("a", "take this", "me")).state)
    assert (work.cause, work.delivered, work.text) == ("reply", ("in=>a",), "take this")
    session = StreamId(f"{FLOW}__helper")
    log.add(NodeClaimed("a", "helper", session, "reply", work.delivered, text=work.text))
    log.add(task_finished(log.state, "a", Ended("stop", "hi"), ANSWER))
    assert runnable(log.state) == ()
