"""The messages for a role that reviews a flow, or that writes the feedback."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.engine.flows.prompts.entry import Contracts, fence
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE, RoleWork
from perdure.engine.flows.rules.reflection import assigned_path
from perdure.session.flows.run import FeedbackContext, FlowState

_FOCUS = {
    "standard": "It was an ordinary flow: look for what in roles, contracts and tools held it up.",
    "takeover": "The flow set up the project's documents from what was there: say what was hard "
    "to find out, and what the set-up should have asked.",
    "greenfield": "The flow set up a new project: say what the set-up left open, and what it "
    "asked for that nobody could know yet.",
    "update": "The flow brought a project to a newer version of the framework: say what of it was "
    "unclear, missing or had to be done by hand.",
}


def read_findings(state: FlowState, work: RoleWork) -> tuple[str, ...]:
    """Return the paths of the findings that `work` receives, in order."""
    phase = state.run.improvement_phase
    if work.role == FEEDBACK_ROLE and phase is not None:
        return tuple(phase.findings_produced.values())
    return work.findings


def reflection_message(
    state: FlowState, work: RoleWork, contracts: Contracts, findings: Mapping[str, str]
) -> str:
    """Return the message with which the review `work` begins.

    `findings` maps each path that `read_findings` returns to the content of the file. A person's
    reply is passed on unchanged, without other text.
    """
    if work.text is not None:
        return work.text
    path = assigned_path(state, work.role)
    if work.role == FEEDBACK_ROLE:
        focus = _focus(state.run.feedback_context)
        asked = contracts.feedback.replace("{focus}", focus).replace("{artifact_path}", path)
    else:
        asked = contracts.meta_analysis.replace("{findings_path}", path)
    told = [f"## {name}\n{fence(findings.get(name, ''))}" for name in read_findings(state, work)]
    return "\n\n".join([asked.strip(), *told])


def _focus(context: FeedbackContext) -> str:
    return _FOCUS.get(context.initialization_mode or context.kind, _FOCUS["standard"])
