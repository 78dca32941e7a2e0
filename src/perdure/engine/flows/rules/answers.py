"""Apply a person's answer to a question of a flow, for the inbox and for the flow commands.

The inbox and the flow commands use this module and the module ``people``. An answer belongs to one
wait, which is identified by the entry that began it. If an answer comes too late, `settled_by`
returns how the wait ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import msgspec

from perdure.engine.flows.rules import people
from perdure.engine.flows.rules.flow_waits import AS_GIVEN, FlowWait, question_of, waits_in
from perdure.errors import FlowRefusal, InvalidEntry, QuestionNotFound
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.flows.run import ITSELF, FlowRun, FlowState
from perdure.session.ids import EntryId
from perdure.session.notes import SideBody

NO_NOTE = "a reply has no note: write everything into the reply"
NO_NOTE_OF_A_CHOICE = "this answer takes no note: omit the note"


_CHOICES = frozenset({"improvement-choice", "feedback-consent", "role-configuration"})


class WaitEnd(msgspec.Struct, frozen=True):
    """The entry that ended a wait.

    If a person ended the wait, `choice` is the answer, and `by` is the name of the person.
    """

    entry: Entry
    choice: str | None = None
    by: str | None = None


def apply_answer(
    state: FlowState, question: EntryId, answer: str, by: str, note: str | None = None
) -> SideBody:
    """Return the entry that records `answer` as the answer to the wait with the id `question`.

    Raises: FlowRefusal if no wait has the id `question`; InvalidEntry if the answer is not valid.
    """
    waiting = next((each for each in waits_in(state) if each.question == question), None)
    if waiting is None:
        why = f"nothing waits under {question}"
        raise FlowRefusal(state.run.flow_id, why, is_waiting=True)
    if waiting.topic == "handoff-approval":
        return _apply_approval(state, waiting, answer, by, note)
    if note is not None:
        is_choice = waiting.topic in _CHOICES
        raise invalid_answer(NO_NOTE_OF_A_CHOICE if is_choice else NO_NOTE)
    match waiting.topic:
        case "improvement-choice":
            mode = cast("kinds.ImprovementMode", _one_of(waiting, answer))
            return people.choose_improvement(state, mode, by)
        case "feedback-consent":
            is_granted = _one_of(waiting, answer) == "grant"
            return people.decide_feedback(state, by, is_granted=is_granted)
        case "role-configuration":
            return configure_role(state, waiting, answer, by)
        case _:
            if not answer.strip():
                raise invalid_answer("there is nothing to say in the reply")
            return people.reply(state, answer, by, waiting.target)


def _apply_approval(
    state: FlowState, waiting: FlowWait, answer: str, by: str, note: str | None
) -> SideBody:
    if _one_of(waiting, answer) == "decline":
        return people.decline(state, by, waiting.target, note)
    if note is not None:
        raise invalid_answer(NO_NOTE_OF_A_CHOICE)
    return people.approve(state, by, waiting.target)


def configure_role(
    state: FlowState, waiting: FlowWait, answer: str, by: str
) -> kinds.RoleConfigured:
    """Parse an answer that configures a role, such as ``default`` or ``model=… skills=a,b``.

    Raises: InvalidEntry if a value is not offered.
    """
    choice = choice_in(answer)
    check_offered(choice, waiting.offers or kinds.Offers())
    role = waiting.role or ""
    return people.configure(state, role, model=choice.model, skills=choice.skills, by=by)


def check_offered(choice: Choice, offers: kinds.Offers) -> None:
    """Check that `offers` contain `choice`.

    Raises: InvalidEntry if `offers` do not contain `choice`.
    """
    if choice.model is not None and choice.model not in offers.models:
        known = ", ".join(offers.models) or "none"
        raise invalid_answer(f"there is no model {choice.model!r} to choose; there are: {known}")
    for name in choice.skills or ():
        if name not in offers.skills:
            known = ", ".join(offers.skills) or "none"
            raise invalid_answer(f"there is no skill {name!r} to choose; there are: {known}")


class Choice(msgspec.Struct, frozen=True):
    """The chosen configuration of a role.

    If a field is None, the value from the role's agent and files applies.
    """

    model: str | None = None
    skills: tuple[str, ...] | None = None


def choice_in(words: str) -> Choice:
    """Parse the choice ``default``, ``model=NAME``, ``skills=A,B`` or ``model=NAME skills=A,B``.

    ``skills=none`` chooses no skills.
    Raises: InvalidEntry if `words` have another form.
    """
    model: str | None = None
    skills: tuple[str, ...] | None = None
    given = words.split()
    for word in given:
        key, equals, value = word.partition("=")
        if key == "model" and value and model is None:
            model = value
        elif key == "skills" and equals:
            named = () if value == "none" else tuple(n for n in value.split(",") if n)
            skills = (*(skills or ()), *named)
        elif word != AS_GIVEN or len(given) != 1:
            raise invalid_answer(
                f"{word!r} says nothing about what a role works with; write {AS_GIVEN}, or "
                "model=NAME and skills=NAME,NAME (skills=none: without any)"
            )
    if not given:
        raise invalid_answer(f"say what the role works with: {AS_GIVEN}, model=NAME, skills=NAME")
    return Choice(model, skills)


def _one_of(waiting: FlowWait, answer: str) -> str:
    if answer not in waiting.choices:
        raise invalid_answer(f"{answer!r} is none of the answers {', '.join(waiting.choices)}")
    return answer


def invalid_answer(reason: str) -> InvalidEntry:
    """Return the error for an answer that cannot be stored; its text is `reason`."""
    return InvalidEntry(reason, told=reason)


# ---------------------------------------------------------------- late answers


def settled_by(state: FlowState, question: EntryId, log: Iterable[tuple[Entry, object]]) -> WaitEnd:
    """Return how the wait with the id `question` ended; `log` is the whole log of the flow.

    Raises: QuestionNotFound if the entry `question` began no wait; FlowRefusal if the wait
    continues.
    """
    target: str | None = None
    role: str | None = None
    for entry, body in log:
        if target is None:
            begun = _waits_begun(body)
            named = [each for each in begun if question in (entry.id, f"{entry.id}:{each}")]
            target = named[0] if named else None
            role = begun.get(target) if target is not None else None
            continue
        found = _ending(target, role, entry, body)
        if found is not None:
            return found
    if target is None:
        raise QuestionNotFound(question)
    now = question_of(state, target)
    why = f"it does not wait under {question} any more, but {now}"
    raise FlowRefusal(state.run.flow_id, why, is_waiting=True)


def _waits_begun(body: object) -> dict[str, str | None]:
    """Map each target whose wait begins with `body` to its role, or to None for the flow itself."""
    match body:
        case kinds.NodeParked() | kinds.HandoffStaged() | kinds.HandoffDeclined():
            return {body.node: body.role}
        case kinds.ImprovementParked():
            return {body.role: body.role}
        case kinds.ForwardPassClosed() | kinds.FeedbackAsked():
            return {ITSELF: None}
        case kinds.FlowImported():
            run = msgspec.convert(body.run, FlowRun)
            phase = run.improvement_phase
            of_roles = {} if phase is None else phase.awaiting_human_roles
            waiting = run.awaiting_human_nodes | of_roles
            return {target: each.role for target, each in waiting.items()} | {ITSELF: None}
        case _:
            return {}


def _ending(target: str, role: str | None, entry: Entry, body: object) -> WaitEnd | None:
    """Return the end of the wait of `target` if `entry` ends it, else None."""
    match body:
        case kinds.HumanReplied() if body.target == target:
            return WaitEnd(entry, body.text, body.by)
        case kinds.HandoffMade() if body.node == target:
            return WaitEnd(entry, "approve", body.approved_by)
        case kinds.HandoffDeclined() if body.node == target:
            return WaitEnd(entry, "decline", body.by)
        case kinds.ImprovementChosen() if target == ITSELF:
            return WaitEnd(entry, body.mode, body.by)
        case kinds.FeedbackDecided() if target == ITSELF:
            return WaitEnd(entry, "grant" if body.is_granted else "deny", body.by)
        case kinds.RoleConfigured() if body.role == role:
            return WaitEnd(entry, _words_of(body), body.by)
        case kinds.NodeClaimed() if body.node == target:
            return WaitEnd(entry)
        case _:
            return None


def _words_of(body: kinds.RoleConfigured) -> str:
    """Return the configuration `body` in the form in which a person writes an answer."""
    words = [] if body.model is None else [f"model={body.model}"]
    words += [] if body.skills is None else [f"skills={','.join(body.skills) or 'none'}"]
    return " ".join(words) or AS_GIVEN
