"""What of a flow waits for a person, in words, and how it can be answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from perdure.session.flows.kinds import AwaitingReason
from perdure.session.flows.run import AwaitingHuman, FlowState
from perdure.session.ids import EntryId

Topic = AwaitingReason | Literal["improvement-choice", "feedback-consent"]

_TEXTS: dict[str, str] = {
    "prompt-human": "asks, and waits for a reply",
    "autonomous-abort": "stopped, and waits for a reply",
    "consent": "asks whether a tool may run",
    "consent-denied": "was refused a tool, and waits for a reply",
    "role-configuration": "has to be configured",
    "handoff-approval": "wants to hand over",
}


class Waiting(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that waits for a person.

    `target` is the node, in the improvement the role; None for the flow itself. No `choices`: a
    reply in words. `question` is the question of a role's session that asks this.
    """

    topic: Topic
    target: str | None
    text: str
    choices: tuple[str, ...] = ()
    question: EntryId | None = None


def waits_in(state: FlowState) -> tuple[Waiting, ...]:
    """All that waits, but for what the roles' own sessions ask."""
    return tuple(_waits(state))


def _waits(state: FlowState) -> Iterator[Waiting]:
    run, phase = state.run, state.run.improvement_phase
    for node, waiting in run.awaiting_human_nodes.items():
        if node not in run.pending_human_inputs:
            yield _of(node, waiting, _staged(state, node))
    if phase is None:
        return
    if run.status == "awaiting_improvement_choice":
        modes = ("parallel", "none") if phase.single_role else ("graph-based", "parallel", "none")
        text = "The work is closed. How shall the roles look back at it?"
        yield Waiting("improvement-choice", None, text, modes)
    for role, waiting in phase.awaiting_human_roles.items():
        if role not in phase.pending_human_inputs:
            yield _of(role, waiting)
    if run.status == "awaiting_feedback_consent":
        text = f"Shall feedback be written to {phase.feedback_artifact_path}?"
        yield Waiting("feedback-consent", None, text, ("granted", "denied"))


def _staged(state: FlowState, node: str) -> str:
    targets = state.run.pending_handoff_approvals.get(node, ())
    return ", ".join(f"{target.artifact} to {target.node}" for target in targets)


def _of(target: str, waiting: AwaitingHuman, about: str = "") -> Waiting:
    text = f"{target} ({waiting.role}) {_TEXTS[waiting.reason]}"
    detail = about or waiting.detail
    choices = ("approve", "decline") if waiting.reason == "handoff-approval" else ()
    return Waiting(waiting.reason, target, f"{text}: {detail}" if detail else text, choices)
