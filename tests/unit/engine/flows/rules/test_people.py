from __future__ import annotations

import msgspec
import pytest

from perdure.engine.flows.rules.people import (
    approve,
    change_consent,
    choose_improvement,
    configure,
    decide_feedback,
    decline,
    reply,
    stop,
)
from perdure.errors import FlowRefusal
from perdure.session.flows.kinds import (
    ConsentChanged,
    FeedbackAsked,
    FeedbackDecided,
    FlowCompleted,
    ForwardPassClosed,
    HandoffAwaited,
    HandoffDeclined,
    HandoffMade,
    HandoffStaged,
    HandoffTarget,
    HumanReplied,
    ImprovementChosen,
    ImprovementClaimed,
    ImprovementParked,
    NodeParked,
    Offers,
    RoleConfigured,
    SelectorOpened,
    StopAsked,
)
from perdure.session.ids import StreamId
from tests.fakes.flow_log import FLOW, FlowLog, graph

FORK = graph("o>a", "o>b", "a>z", "b>z", a="dev_1", b="dev_2", z="owner")
TARGETS = (HandoffTarget("a", "x.md"),)


def two_waiting() -> FlowLog:
    log = FlowLog(FORK).work("o", "a", "b").claim("a", "o=>a").claim("b", "o=>b")
    return log.add(
        NodeParked("a", "dev_1", "prompt-human"), NodeParked("b", "dev_2", "prompt-human")
    )


def staged() -> FlowLog:
    return FlowLog(FORK).claim("o").add(HandoffStaged("o", "o", TARGETS))


def closed() -> FlowLog:
    log = FlowLog(graph("o>z", z="owner")).work("o", "z").claim("z", "o=>z")
    return log.add(ForwardPassClosed("z"))


def test_reply_is_delivered_to_the_given_node_or_role() -> None:
    state = two_waiting().state
    assert reply(state, "yes", "me", "b") == HumanReplied("b", "yes", "me")
    assert reply(state, "yes", "me", "dev_1") == HumanReplied("a", "yes", "me")


def test_reply_without_target_needs_exactly_one_waiting_node() -> None:
    log = two_waiting()
    with pytest.raises(FlowRefusal, match="name which one: a, b wait"):
        reply(log.state, "yes", "me")
    log.add(HumanReplied("a", "no", "me"))
    assert reply(log.state, "yes", "me") == HumanReplied("b", "yes", "me")


def test_reply_without_target_goes_to_node_waiting_for_a_person() -> None:
    log = FlowLog(FORK).work("o", "a", "b").claim("a", "o=>a").claim("b", "o=>b")
    log.add(NodeParked("a", "dev_1", "prompt-human"), HandoffAwaited("b"))
    assert reply(log.state, "yes", "me") == HumanReplied("a", "yes", "me")
    log.add(HumanReplied("a", "yes", "me"))  # then only the one that waits for a handoff is left
    assert reply(log.state, "go on", "me") == HumanReplied("b", "go on", "me")


def test_reply_to_a_node_that_does_not_wait_is_rejected() -> None:
    log = two_waiting().add(HumanReplied("a", "no", "me"))
    for target, why in (("a", "it has been replied to"), ("o", "'o' does not wait"), ("x", "'x'")):
        with pytest.raises(FlowRefusal, match=why):
            reply(log.state, "yes", "me", target)
    with pytest.raises(FlowRefusal, match="it is at work"):
        reply(FlowLog(FORK).claim("o").state, "yes", "me", "o")


def test_reply_to_a_role_goes_to_the_node_waiting_for_a_person() -> None:
    flow = graph("o>a", "o>b", "a>z", "b>z", a="dev", b="dev", z="owner")
    log = FlowLog(flow).work("o", "a", "b").claim("a", "o=>a").add(HandoffAwaited("a"))
    assert reply(log.state, "go", "me", "dev").target == "a"
    log.claim("b", "o=>b").add(NodeParked("b", "dev", "autonomous-abort"))
    assert reply(log.state, "go", "me", "dev").target == "b"


@pytest.mark.parametrize(
    ("reason", "why"),
    [("role-configuration", "waits for Flow.configure"), ("consent", "waits for consent")],
)
def test_text_reply_is_rejected_if_the_node_waits_for_another_decision(
    reason: str, why: str
) -> None:
    log = FlowLog(FORK).claim("o")
    log.add(NodeParked("o", "o", reason))  # pyright: ignore[reportArgumentType] - the parameters are its literals
    with pytest.raises(FlowRefusal, match=why):
        reply(log.state, "go", "me", "o")


def test_only_running_node_or_role_can_be_stopped() -> None:
    log = FlowLog(FORK).work("o", "a").claim("a", "o=>a")
    assert stop(log.state, "me", "a") == StopAsked("a", "me")
    assert stop(log.state, "me", "dev_1") == StopAsked("dev_1", "me")
    with pytest.raises(FlowRefusal, match=r"'b' is not at work \(at work: a\)"):
        stop(log.state, "me", "b")


def test_staged_handoff_can_be_approved_or_declined() -> None:
    state = staged().state
    assert approve(state, "me") == HandoffMade("o", TARGETS, approved_by="me")
    assert decline(state, "me", "o", "no") == HandoffDeclined("o", "o", "me", "no")
    with pytest.raises(FlowRefusal, match="name which one: o waits"):
        approve(state, "me", "a")
    with pytest.raises(FlowRefusal, match="waits for a handoff to be approved"):
        decline(FlowLog(FORK).state, "me")
    with pytest.raises(FlowRefusal, match=r"Flow\.approve or Flow\.decline"):
        reply(state, "yes", "me", "o")


def test_consent_changes_and_role_configurations_contain_the_given_values() -> None:
    state = FlowLog(FORK).state
    assert change_consent(state, "me", mode="full-access") == ConsentChanged("me", "full-access")
    assert configure(state, "dev_1", model="p:m") == RoleConfigured("dev_1", "p:m")
    with pytest.raises(FlowRefusal, match="it has: o, dev_1, dev_2, owner"):
        configure(state, "dev_3", model="p:m")
    ended = msgspec.structs.replace(
        state, run=msgspec.structs.replace(state.run, status="completed")
    )
    with pytest.raises(FlowRefusal, match="it is completed"):
        configure(ended, "dev_1", model="p:m")


def test_review_mode_is_chosen_after_the_flow_is_closed() -> None:
    with pytest.raises(FlowRefusal, match="it is running"):
        choose_improvement(FlowLog(FORK).state, "parallel", "me")
    state = closed().state
    assert choose_improvement(state, "none", "me").graph is None
    by_graph = choose_improvement(state, "graph-based", "me").graph
    assert by_graph is not None
    assert by_graph.roles == ("o", "owner")


def test_feedback_cannot_be_decided_before_it_is_requested() -> None:
    log = closed()
    with pytest.raises(FlowRefusal):
        decide_feedback(log.state, "me", is_granted=True)
    log.add(choose_improvement(log.state, "parallel", "me"), FeedbackAsked("f.md"))
    decided = decide_feedback(log.state, "me", is_granted=False)
    assert decided == FeedbackDecided(is_granted=False, by="me")


def test_replies_are_delivered_to_roles_during_the_role_reviews() -> None:
    log = closed()
    log.add(choose_improvement(log.state, "parallel", "me"), ImprovementClaimed("o", FLOW))
    with pytest.raises(FlowRefusal, match="nothing in it waits for a reply"):
        reply(log.state, "go", "me")
    log.add(ImprovementParked("o", "prompt-human"))
    assert reply(log.state, "go", "me") == HumanReplied("o", "go", "me")


def test_reply_to_a_lost_role_is_rejected_during_the_role_reviews() -> None:
    log = closed()
    log.add(choose_improvement(log.state, "parallel", "me"), ImprovementClaimed("o", FLOW))
    log.add(ImprovementParked("o", "prompt-human"))
    for target in (None, "o"):
        with pytest.raises(FlowRefusal, match="its session was erased"):
            reply(log.state, "go", "me", target, {"o": "its session was erased"})


def test_empty_reply_is_rejected() -> None:
    with pytest.raises(FlowRefusal, match="there is nothing to say"):
        reply(two_waiting().state, " ", "me", "a")


def test_completed_flow_rejects_all_actions() -> None:
    state = closed().add(ImprovementChosen("none", "me"), FlowCompleted()).state
    with pytest.raises(FlowRefusal, match="no role works in it any more"):
        change_consent(state, "me", mode="full-access")


def test_role_is_stopped_by_name_during_the_role_reviews() -> None:
    log = FlowLog(graph("o>dev", "dev>z", z="owner", dev="qa")).work("o", "dev").work("dev", "z")
    log.claim("z", "dev=>z").add(ForwardPassClosed("z"))
    log.add(choose_improvement(log.state, "parallel", "me"))
    log.add(ImprovementClaimed("dev", StreamId("s")))
    assert stop(log.state, "me", "dev") == StopAsked("dev", "me")
    with pytest.raises(FlowRefusal, match=r"'qa' is not at work \(at work: dev\)"):
        stop(log.state, "me", "qa")
    with pytest.raises(FlowRefusal, match="it is at work"):
        reply(log.state, "go on", "me", "dev")
    log.add(ImprovementParked("dev", "prompt-human"))
    with pytest.raises(FlowRefusal, match="'qa' does not wait"):
        reply(log.state, "go on", "me", "qa")
    log.add(reply(log.state, "go on", "me", "dev"))
    with pytest.raises(FlowRefusal, match="it has been replied to"):
        reply(log.state, "go on", "me", "dev")


def test_selector_can_be_stopped_by_role_or_node_name() -> None:
    opened = SelectorOpened("dev_1", StreamId("s"), 1, Offers(("m", "n")))
    state = FlowLog(FORK).add(opened).state
    for target in ("dev_1", "a"):
        assert stop(state, "me", target) == StopAsked("dev_1", "me")
    with pytest.raises(FlowRefusal, match=r"'b' is not at work \(at work: dev_1\)"):
        stop(state, "me", "b")
