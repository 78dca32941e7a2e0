"""List what a flow waits for from people, in words, and how each wait can be answered.

Each wait is a question in the inbox; the entry that began the wait identifies it. An answer belongs
to exactly one wait. The answer is rejected if the flow now waits for something else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from perdure.bounds.short_repr import ShortRepr
from perdure.engine.flows.rules.ready_nodes import is_configured
from perdure.session.flows.kinds import HandoffTarget, Offers
from perdure.session.flows.run import ITSELF, Asked, AwaitingHuman, Declined, FlowState
from perdure.session.ids import EntryId, StreamId, entry_id
from perdure.session.notes import QuestionTopic

_HASH_SHOWN = len("sha256-") + 12
ASKS = "asks, and waits for a reply"
"""How the text of a wait ends if the role itself asked the question."""

_TEXTS: dict[str, str] = {
    "prompt-human": ASKS,
    "autonomous-abort": "stopped, and waits for a reply",
    "consent": "asks whether a tool may run",
    "consent-denied": "was refused a tool, and waits for a reply",
    "role-configuration": "has to be configured",
    "handoff-approval": "wants to hand over",
}

AS_GIVEN = "default"
"""The answer that keeps the configuration from the role's agent and the role's own files."""


class FlowWait(ShortRepr, frozen=True, omit_defaults=True):
    """A wait for a person.

    `target` is the node that waits. If a role waits in the improvement phase, or if the session of
    a role asks, `target` is the role. If the flow itself waits, `target` is None. If there are no
    `choices`, the answer is free text. `question` is the id of the wait in the inbox; `session` is
    the role's session, if the session asks instead of the flow. `offers` are the values from which
    a role's configuration can be chosen.
    Units: `asked_at` is Unix milliseconds.
    """

    topic: QuestionTopic
    target: str | None
    text: str
    choices: tuple[str, ...] = ()
    question: EntryId | None = None
    role: str | None = None
    asked_at: int = 0
    offers: Offers | None = None
    session: StreamId | None = None


def waits_in(state: FlowState, lost: Collection[str] = ()) -> tuple[FlowWait, ...]:
    """Return all waits, except questions of the roles' own sessions.

    If the role of a wait is in `lost`, the wait is omitted, because the role could not continue
    after a reply. A wait for the approval of a handoff is always returned, because an approved
    handoff needs no further work of the role.
    """
    return tuple(
        each for each in _waits(state) if each.role not in lost or each.topic == "handoff-approval"
    )


def question_of(state: FlowState, target: str) -> EntryId:
    """Return the id under which the inbox lists the question of `target`.

    `target` is a node, a role, or `ITSELF`, which stands for the flow.
    """
    asked = state.asked.get(target, Asked(0, 0))
    id = entry_id(state.run.flow_id, asked.seq)
    # In an imported flow, one entry has the waits of all nodes.
    return EntryId(f"{id}:{target}") if asked.seq == 0 and target else id


def _waits(state: FlowState) -> Iterator[FlowWait]:
    run, phase = state.run, state.run.improvement_phase
    for node, waiting in run.awaiting_human_nodes.items():
        is_replied = node in run.pending_human_inputs and waiting.reason != "role-configuration"
        if not is_replied and not is_configured(state, waiting):
            yield _of(state, node, waiting, _staged_text(state, node))
    if phase is None:
        return
    if run.status == "awaiting_improvement_choice":
        modes = ("parallel", "none") if phase.single_role else ("graph-based", "parallel", "none")
        text = "The work is closed. How shall the roles review the flow?"
        yield _of_itself(state, "improvement-choice", text, modes)
    for role, waiting in phase.awaiting_human_roles.items():
        if role not in phase.pending_human_inputs:
            yield _of(state, role, waiting)
    if run.status == "awaiting_feedback_consent":
        text = f"Shall feedback be written to {phase.feedback_artifact_path}?"
        yield _of_itself(state, "feedback-consent", text, ("grant", "deny"))


def _staged_text(state: FlowState, node: str) -> str:
    targets = state.run.pending_handoff_approvals.get(node, ())
    return ", ".join(f"{target.artifact} to {target.node}{_content(target)}" for target in targets)


def _content(target: HandoffTarget) -> str:
    """Return the first characters of the hash of the artifact."""
    return "" if target.digest is None else f" ({target.digest[:_HASH_SHOWN]}…)"


def _of(state: FlowState, target: str, waiting: AwaitingHuman, about: str = "") -> FlowWait:
    text = f"{target} ({waiting.role}) {_TEXTS[waiting.reason]}"
    detail = about or waiting.detail
    declined = declined_of(state, target)
    if declined is not None:
        handoffs = ", ".join(f"{each.artifact} to {each.node}" for each in declined.targets)
        text = f"{target} ({waiting.role}) waits for a reply: {declined.by} declined {handoffs}"
    asked = state.asked.get(target, Asked(0, 0))
    return FlowWait(
        topic=waiting.reason,
        target=target,
        text=f"{text}: {detail}" if detail else text,
        choices=_choices(waiting, asked.offers),
        question=question_of(state, target),
        role=waiting.role,
        asked_at=asked.at,
        offers=asked.offers,
    )


def declined_of(state: FlowState, target: str) -> Declined | None:
    """Return the handoff of `target` if a person declined it and `target` waits for a reply."""
    waiting = state.run.awaiting_human_nodes.get(target)
    return state.declined.get(target) if waiting and waiting.reason == "prompt-human" else None


def _choices(waiting: AwaitingHuman, offers: Offers | None) -> tuple[str, ...]:
    if waiting.reason == "handoff-approval":
        return ("approve", "decline")
    if waiting.reason != "role-configuration":
        return ()
    offers = offers or Offers()
    models = tuple(f"model={model}" for model in offers.models)
    return (AS_GIVEN, *models, *(f"skills={name}" for name in offers.skills))


def _of_itself(
    state: FlowState, topic: QuestionTopic, text: str, choices: tuple[str, ...]
) -> FlowWait:
    asked = state.asked.get(ITSELF, Asked(0, 0))
    question = question_of(state, ITSELF)
    return FlowWait(topic, None, text, choices, question, asked_at=asked.at)
