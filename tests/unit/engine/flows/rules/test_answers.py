"""Answers to the waits of a flow: each ends one wait, identified by its first entry."""

from __future__ import annotations

import pytest

from perdure.engine.flows.rules.answers import Choice, apply_answer, choice_in, settled_by
from perdure.engine.flows.rules.flow_waits import waits_in
from perdure.errors import FlowRefusal, InvalidEntry, QuestionNotFound
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.flows.fold import flow_state
from perdure.session.flows.run import FlowState
from perdure.session.ids import EntryId, entry_id
from perdure.session.notes import SideBody
from tests.fakes.flow_log import FLOW, FlowLog, entry_of, graph

LINE = graph("owner-intake>build", "build>end", **{"owner-intake": "owner", "end": "owner"})
OFFERS = kinds.Offers(("p:small", "p:big"), {"tests": "How we test.", "prose": "How we write."})
PARKED = kinds.NodeParked("owner-intake", "owner", "prompt-human")
TO_CONFIGURE = kinds.NodeParked("owner-intake", "owner", "role-configuration", offers=OFFERS)
CLOSED = kinds.ForwardPassClosed("end")
STAGED = kinds.HandoffStaged("owner-intake", "owner", (kinds.HandoffTarget("build", "plan.md"),))


def asking(*bodies: SideBody) -> FlowState:
    """Return the state of a flow after `bodies`."""
    return FlowLog(LINE).claim("owner-intake").add(*bodies).state


def question(state: FlowState) -> EntryId:
    """Return the only open question of the flow."""
    (waiting,) = waits_in(state)
    assert waiting.question is not None
    return waiting.question


def log_of(*bodies: SideBody) -> list[tuple[Entry, object]]:
    """Return the log of a flow that has `bodies` after its start."""
    started = kinds.FlowStarted("p", "/w", "/w/r", LINE, ("owner-intake",))
    return [(entry_of(seq, body), body) for seq, body in enumerate((started, *bodies))]


def test_question_has_the_id_of_the_entry_that_asked() -> None:
    state = asking(PARKED)
    assert question(state) == entry_id(FLOW, state.head)


def test_text_reply_is_delivered_to_the_node_that_asked() -> None:
    state = asking(PARKED)
    said = apply_answer(state, question(state), "By train.", "ana")
    assert said == kinds.HumanReplied("owner-intake", "By train.", "ana")
    for words, note in (("  ", None), ("Yes.", "a note")):
        with pytest.raises(InvalidEntry):
            apply_answer(state, question(state), words, "ana", note)


def test_staged_handoff_is_approved_or_declined_with_a_reason() -> None:
    state = asking(STAGED)
    approved = apply_answer(state, question(state), "approve", "ana")
    assert isinstance(approved, kinds.HandoffMade)
    assert approved.approved_by == "ana"
    declined = apply_answer(state, question(state), "decline", "ana", "Too short.")
    assert declined == kinds.HandoffDeclined("owner-intake", "owner", "ana", "Too short.")
    with pytest.raises(InvalidEntry, match="none of the answers approve, decline"):
        apply_answer(state, question(state), "yes", "ana")


def test_review_mode_and_feedback_are_decided_by_answers() -> None:
    state = asking(kinds.ForwardPassClosed("end"))
    chosen = apply_answer(state, question(state), "none", "ana")
    assert chosen == kinds.ImprovementChosen("none", "ana")
    state = asking(
        kinds.ForwardPassClosed("end"),
        kinds.ImprovementChosen("parallel", "ana", "improvement.yaml", LINE),
        kinds.FeedbackAsked("f.md"),
    )
    decided = apply_answer(state, question(state), "deny", "ana")
    assert decided == kinds.FeedbackDecided(is_granted=False, by="ana")


def test_role_is_configured_with_the_offered_choices() -> None:
    state = FlowLog(LINE).add(TO_CONFIGURE).state
    (waiting,) = waits_in(state)
    assert waiting.choices == (
        *("default", "model=p:small", "model=p:big", "skills=tests", "skills=prose"),
    )
    chosen = apply_answer(state, question(state), "model=p:big skills=tests,prose", "ana")
    assert chosen == kinds.RoleConfigured("owner", "p:big", ("tests", "prose"), by="ana")
    for wrong, told in (
        ("model=p:huge", "there are: p:small, p:big"),
        ("skills=magic", "there are: tests, prose"),
    ):
        with pytest.raises(InvalidEntry, match=told):
            apply_answer(state, question(state), wrong, "ana")


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        ("default", Choice()),
        ("model=p:m", Choice("p:m")),
        ("skills=none", Choice(None, ())),
        ("skills=a skills=b,c model=p:m", Choice("p:m", ("a", "b", "c"))),
    ],
)
def test_role_choice_is_parsed_from_the_text_of_an_answer(words: str, choice: Choice) -> None:
    assert choice_in(words) == choice


@pytest.mark.parametrize("words", ["", "big", "default model=p:m", "model=", "model=a model=b"])
def test_answer_text_without_a_choice_is_rejected(words: str) -> None:
    with pytest.raises(InvalidEntry, match="default"):
        choice_in(words)


def test_answer_to_ended_wait_is_rejected() -> None:
    first = question(asking(PARKED))
    later = asking(PARKED, PARKED)
    with pytest.raises(FlowRefusal, match="nothing waits under"):
        apply_answer(later, first, "No.", "bob")


def test_answer_that_ended_a_wait_is_found_in_the_log() -> None:
    claimed = kinds.NodeClaimed("owner-intake", "owner", FLOW, "start")
    said = kinds.HumanReplied("owner-intake", "Go on.", "ana")
    bodies = (claimed, PARKED, said)
    found = settled_by(asking(PARKED, said), entry_id(FLOW, 2), log_of(*bodies))
    assert (found.entry.seq, found.choice, found.by) == (3, "Go on.", "ana")
    woken = settled_by(asking(PARKED), entry_id(FLOW, 2), log_of(claimed, PARKED, claimed))
    assert woken.choice is None
    configured = kinds.RoleConfigured("owner", "p:big", (), by="ana")
    found = settled_by(
        asking(TO_CONFIGURE), entry_id(FLOW, 2), log_of(claimed, TO_CONFIGURE, configured)
    )
    assert (found.choice, found.by) == ("model=p:big skills=none", "ana")


@pytest.mark.parametrize(
    ("asked", "ended", "choice"),
    [
        (STAGED, kinds.HandoffMade("owner-intake", (), approved_by="ana"), "approve"),
        (STAGED, kinds.HandoffDeclined("owner-intake", "owner", "ana"), "decline"),
        (kinds.ForwardPassClosed("end"), kinds.ImprovementChosen("none", "ana"), "none"),
        (kinds.FeedbackAsked("f"), kinds.FeedbackDecided(is_granted=True, by="ana"), "grant"),
        (
            kinds.ImprovementParked("owner", "prompt-human"),
            kinds.HumanReplied("owner", "Yes.", "ana"),
            "Yes.",
        ),
    ],
)
def test_choice_of_every_kind_of_answer_is_found_in_the_log(
    asked: SideBody, ended: SideBody, choice: str
) -> None:
    found = settled_by(asking(), entry_id(FLOW, 1), log_of(asked, ended))
    assert (found.choice, found.by) == (choice, "ana")


def test_unknown_question_and_ended_wait_raise_different_errors() -> None:
    claimed = kinds.NodeClaimed("owner-intake", "owner", FLOW, "start")
    with pytest.raises(QuestionNotFound):
        settled_by(asking(PARKED), entry_id(FLOW, 1), log_of(claimed, PARKED))
    with pytest.raises(FlowRefusal, match=f"does not wait under {FLOW}/2 any more"):
        settled_by(asking(PARKED), entry_id(FLOW, 2), log_of(claimed, PARKED))


@pytest.mark.parametrize("answer", ["approve", "none", "grant", "default"])
def test_note_is_rejected_for_answer_without_note_field(answer: str) -> None:
    asked = {
        "approve": (STAGED,),
        "none": (CLOSED,),
        "grant": (CLOSED, kinds.ImprovementChosen("none", "me"), kinds.FeedbackAsked("f.md")),
        "default": (TO_CONFIGURE,),
    }[answer]
    state = asking(*asked)
    (waiting,) = waits_in(state)
    assert waiting.question is not None
    with pytest.raises(InvalidEntry, match="takes no note"):
        apply_answer(state, waiting.question, answer, "me", "by the way")


def test_waits_of_an_imported_flow_have_different_ids() -> None:
    run: dict[str, object] = {
        "flowId": FLOW,
        "stateVersion": "11",
        "projectNamespace": "p",
        "status": "running",
        "workspaceRoot": "/w",
        "recordFolderPath": "/w/r",
        "runningNodes": [],
        "awaitingHumanNodes": {
            "owner-intake": {"role": "owner", "reason": "prompt-human"},
            "build": {"role": "build", "reason": "autonomous-abort"},
        },
        "pendingHumanInputs": {},
        "visitedNodeIds": [],
        "completedHandoffs": [],
        "receivingHandoff": {},
        "historyHandoff": {},
        "awaitingHandoff": [],
        "consentState": {"mode": "no-access"},
        "feedbackContext": {"kind": "standard"},
    }
    imported = kinds.FlowImported(run, LINE, {})
    from_there: list[tuple[Entry, object]] = [(entry_of(0, imported), imported)]
    state = flow_state(from_there)
    ids = [waiting.question for waiting in waits_in(state)]
    assert ids == [f"{FLOW}/0:owner-intake", f"{FLOW}/0:build"]
    said = apply_answer(state, EntryId(f"{FLOW}/0:build"), "Go on.", "ana")
    assert said == kinds.HumanReplied("build", "Go on.", "ana")
    told = (entry_of(1, said), said)
    found = settled_by(state, EntryId(f"{FLOW}/0:build"), [*from_there, told])
    assert found.by == "ana"
