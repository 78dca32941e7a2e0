"""The effect of a finished turn of a role that reviews the flow."""

from __future__ import annotations

from collections.abc import Mapping

from perdure.engine.flows.rules.handoffs import Artifact
from perdure.engine.flows.rules.improvement import FEEDBACK_ROLE, feedback_path, findings_path
from perdure.engine.flows.rules.node_end import (
    SHORTER,
    Ended,
    repair_of,
    still_wrong,
    unless_stopped,
    why_parked,
)
from perdure.engine.flows.rules.signals import (
    Fault,
    FeedbackComplete,
    MetaAnalysisComplete,
    Plain,
    Signal,
    signal_in,
)
from perdure.session.flows.kinds import FindingsMade, ImprovementParked
from perdure.session.flows.run import FlowState
from perdure.session.notes import SideBody


def assigned_path(state: FlowState, role: str) -> str:
    """Return the path to which `role` has to write its findings."""
    return feedback_path(state) if role == FEEDBACK_ROLE else findings_path(role)


def role_finished(
    state: FlowState,
    role: str,
    ended: Ended,
    artifacts: Mapping[str, Artifact],
    unhealthy: tuple[str, ...] = (),
) -> SideBody:
    """Return the entry body that follows from the end `ended` of a review by `role`.

    `artifacts` contains the file at the role's `assigned_path`. `unhealthy` are the failed checks
    of the project; they are reported only to the owner.
    """
    ended = unless_stopped(state, ended, role)
    if ended.end == "length":
        return _request_repair(state, role, SHORTER)
    if ended.end != "stop":
        return ImprovementParked(role, *why_parked(ended))
    signal = signal_in(ended.text)
    if isinstance(signal, Plain) and signal.type == "prompt-human":
        return ImprovementParked(role, "prompt-human")
    fault = _fault(state, role, signal, artifacts, unhealthy)
    if fault is not None:
        return _request_repair(state, role, fault)
    path = assigned_path(state, role)
    return FindingsMade(role, path, artifacts[path].digest)


def _fault(
    state: FlowState,
    role: str,
    signal: Signal | Fault,
    artifacts: Mapping[str, Artifact],
    unhealthy: tuple[str, ...],
) -> Fault | None:
    if isinstance(signal, Fault):
        return signal
    named = _path_in(signal, is_feedback=role == FEEDBACK_ROLE)
    path = assigned_path(state, role)
    if named is None:
        return Fault(
            "unknown_signal_type",
            "the signal is not that of a review",
            f"You are reviewing the flow. Write to `{path}` and end with the block you were shown.",
        )
    if named.removeprefix("./") != path:
        return Fault(
            "artifact_unavailable",
            f"it names {named!r} instead of {path!r}",
            f"Write what you found to `{path}`, exactly there, and name that path.",
        )
    problem = artifacts[path].problem
    if problem is not None:
        return Fault(
            "artifact_unavailable",
            f"{path!r} cannot be used: {problem}",
            f"`{path}` cannot be used: {problem}. Write it, then end with the same block.",
        )
    if unhealthy:
        return Fault(
            "runtime_health",
            f"the project is not in order: {'; '.join(unhealthy)}",
            f"Put right: {'; '.join(unhealthy)}.",
        )
    return None


def _path_in(signal: Signal, *, is_feedback: bool) -> str | None:
    if is_feedback:
        return signal.artifact if isinstance(signal, FeedbackComplete) else None
    return signal.findings if isinstance(signal, MetaAnalysisComplete) else None


def _request_repair(state: FlowState, role: str, fault: Fault) -> SideBody:
    asked = repair_of(state, role, role, fault)
    return asked or ImprovementParked(role, "autonomous-abort", still_wrong(fault))
