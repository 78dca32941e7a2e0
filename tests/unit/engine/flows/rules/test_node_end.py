from __future__ import annotations

import pytest

from perdure.engine.flows.rules.handoffs import Artifact
from perdure.engine.flows.rules.node_end import (
    MOST_REPAIRS,
    Ended,
    artifacts_named,
    node_finished,
)
from perdure.engine.flows.rules.ready_nodes import runnable
from perdure.session.flows.kinds import (
    ForwardPassClosed,
    HandoffAwaited,
    HandoffMade,
    HandoffTarget,
    NodeParked,
    RepairAsked,
)
from perdure.session.ledger import TurnEnd
from perdure.session.notes import SideBody
from tests.fakes.flow_log import FlowLog, graph

LINE = graph("owner-intake>a", "a>end", **{"owner-intake": "owner", "end": "owner"})


def block(yaml: str) -> str:
    return f"Done.\n```handoff\n{yaml}\n```"


def at_a() -> FlowLog:
    return FlowLog(LINE).work("owner-intake", "a").claim("a", "owner-intake=>a")


def finished(log: FlowLog, node: str, yaml: str, *unhealthy: str) -> SideBody:
    text = block(yaml)
    found = {path: Artifact(path) for path in artifacts_named(text)}
    return node_finished(log.state, node, Ended("stop", text), found, unhealthy)


def test_handoff_signal_at_the_end_of_a_turn_makes_the_handoff() -> None:
    made = finished(at_a(), "a", "target_node_id: end\nartifact_path: done.md")
    assert made == HandoffMade("a", (HandoffTarget("end", "done.md"),))


def test_question_signal_makes_the_node_wait_for_a_person() -> None:
    assert finished(at_a(), "a", "type: prompt-human") == NodeParked("a", "a", "prompt-human")


def test_node_with_all_inputs_cannot_wait_for_a_handoff() -> None:
    body = finished(at_a(), "a", "type: await-handoff")
    assert isinstance(body, RepairAsked)
    fork = graph("o>a", "o>b", "a>z", "b>z")
    log = FlowLog(fork).work("o", "a", "b").work("a", "z").claim("z", "a=>z")
    assert finished(log, "z", "type: await-handoff") == HandoffAwaited("z")


def test_only_the_owner_role_can_close_a_finished_flow() -> None:
    log = at_a().hand("a", "end").claim("end", "a=>end")
    assert finished(log, "end", "type: forward-pass-closed") == ForwardPassClosed("end")
    body = finished(log, "end", "type: forward-pass-closed", "the index names no file")
    assert isinstance(body, RepairAsked)
    assert body.code == "runtime_health"
    body = finished(at_a(), "a", "type: forward-pass-closed")
    assert isinstance(body, RepairAsked)
    assert "only a node of the role owner closes the work" in body.message


def test_review_signal_before_the_reviews_is_rejected() -> None:
    body = finished(at_a(), "a", "type: meta-analysis-complete\nfindings_path: f.md")
    assert isinstance(body, RepairAsked)
    assert body.code == "unknown_signal_type"


def test_person_is_asked_after_repeated_repairs() -> None:
    log = at_a()
    for attempt in range(1, MOST_REPAIRS + 1):
        body = node_finished(log.state, "a", Ended("stop", "all done"), {})
        assert isinstance(body, RepairAsked)
        assert (body.attempt, body.code) == (attempt, "missing_block")
        log.add(body)
    body = node_finished(log.state, "a", Ended("stop", "all done"), {})
    assert body == NodeParked(
        "a",
        "a",
        "autonomous-abort",
        "after 3 repairs its turn still ends wrong: the answer has no handoff block",
    )


def test_truncated_answer_causes_request_for_smaller_steps() -> None:
    body = node_finished(at_a().state, "a", Ended("length", "and then"), {})
    assert isinstance(body, RepairAsked)
    assert body.code == "output_limit"


@pytest.mark.parametrize("end", ["aborted", "cancelled", "error", "interrupted", "content_filter"])
def test_failed_turn_makes_the_node_wait_for_a_person(end: TurnEnd) -> None:
    said = block("target_node_id: end\nartifact_path: done.md")
    body = node_finished(at_a().state, "a", Ended(end, said, "it was stopped"), {})
    assert body == NodeParked("a", "a", "autonomous-abort", "it was stopped")


def test_denied_turn_makes_the_node_wait_with_reason_consent_denied() -> None:
    said = block("target_node_id: end\nartifact_path: done.md")
    ended = Ended("aborted", said, "ana denied send", is_denied=True)
    body = node_finished(at_a().state, "a", ended, {"done.md": Artifact("done.md")})
    assert body == NodeParked("a", "a", "consent-denied", "ana denied send")


def test_last_node_waits_while_another_node_has_unread_input() -> None:
    roles = {"o": "owner", "b": "owner", "z": "owner"}
    log = FlowLog(graph("o>a", "o>b", "a>b", "b>z", **roles)).work("o", "a", "b")
    log.work("b", "z").work("a", "b").claim("z", "b=>z")
    told = finished(log, "z", "type: forward-pass-closed")
    assert isinstance(told, RepairAsked)
    assert "a=>b has not been read. End with `type: await-handoff`" in told.message
    awaited = finished(log, "z", "type: await-handoff")
    assert awaited == HandoffAwaited("z")
    (work,) = runnable(log.add(awaited).state)
    assert (work.node.id, work.delivered) == ("b", ("a=>b",))
