"""Decide the effect of a finished turn on its flow: exactly one new entry in the flow's log.

The end of a turn and its effect on the flow are in one commit, so no crash can separate them. An
unusable result is returned to the agent a few times; then a person decides.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.engine.flows.rules.closure import is_work_left, obstacles
from perdure.engine.flows.rules.handoffs import Artifact, decide_handoff
from perdure.engine.flows.rules.ready_nodes import deliverable
from perdure.engine.flows.rules.signals import Fault, Handover, Plain, Signal, signal_in
from perdure.session.flows.kinds import (
    AwaitingReason,
    ForwardPassClosed,
    HandoffAwaited,
    NodeParked,
    RepairAsked,
)
from perdure.session.flows.run import FlowState
from perdure.session.ledger import TurnEnd
from perdure.session.notes import SideBody

MOST_REPAIRS = 3
"""Maximum number of repairs in a row; then a person is asked."""

STOPPED = "it was stopped by a person"

SHORTER = Fault(
    "output_limit",
    "the answer was cut off at the model's limit",
    "Your answer was cut off because it was too long. Go on in smaller steps: write long texts to "
    "files with tools, and end with a short answer and the handoff block.",
)


class Ended(msgspec.Struct, frozen=True):
    """How a turn ended.

    `text` is the last answer of the turn. `detail` is the reason why the turn failed, if it failed.

    `is_denied` is True if the turn ended because a person denied a tool call.
    """

    end: TurnEnd
    text: str = ""
    detail: str | None = None
    is_denied: bool = False


def artifacts_named(text: str) -> tuple[str, ...]:
    """Return the paths that the signal in `text` names, unchanged, for the caller to look up."""
    signal = signal_in(text)
    if not isinstance(signal, Handover):
        return ()
    return tuple(dict.fromkeys(target.artifact for target in signal.targets))


def node_finished(
    state: FlowState,
    node: str,
    ended: Ended,
    artifacts: Mapping[str, Artifact],
    unhealthy: tuple[str, ...] = (),
) -> SideBody:
    """Return the entry body that follows from the end `ended` of a turn of `node`.

    `artifacts` describes the files at the paths from `artifacts_named`. `unhealthy` are failures of
    the project's own checks; they prevent closing the flow.
    """
    role = state.graph.role_of(node)
    ended = unless_stopped(state, ended, node, role)
    if ended.end == "length":
        return _request_repair(state, node, SHORTER)
    if ended.end != "stop":
        return NodeParked(node, role, *why_parked(ended))
    signal = signal_in(ended.text)
    decided = (
        signal
        if isinstance(signal, Fault)
        else _obey_signal(state, node, signal, artifacts, unhealthy)
    )
    return _request_repair(state, node, decided) if isinstance(decided, Fault) else decided


def why_parked(ended: Ended) -> tuple[AwaitingReason, str]:
    """Return why a node waits for a person after a turn without an answer: a reason and a text."""
    reason = "consent-denied" if ended.is_denied else "autonomous-abort"
    return reason, ended.detail or f"its turn ended as {ended.end}"


def unless_stopped(state: FlowState, ended: Ended, *targets: str) -> Ended:
    """Return `ended`, or an abort if a person requested to stop one of `targets`."""
    if not any(target in state.stopping for target in targets):
        return ended
    return msgspec.structs.replace(ended, end="aborted", detail=STOPPED, is_denied=False)


def _obey_signal(
    state: FlowState,
    node: str,
    signal: Signal,
    artifacts: Mapping[str, Artifact],
    unhealthy: tuple[str, ...],
) -> SideBody | Fault:
    if isinstance(signal, Handover):
        return decide_handoff(state, node, signal.targets, artifacts)
    if not isinstance(signal, Plain):
        return Fault(
            "unknown_signal_type",
            "the signal belongs to a review, and the work is not closed",
            "That signal is for the review once the work is closed. Hand over, ask the person, "
            "or close the work.",
        )
    if signal.type == "prompt-human":
        return NodeParked(node, state.graph.role_of(node), "prompt-human")
    if signal.type == "await-handoff":
        return _await_person(state, node)
    return _close_flow(state, node, unhealthy)


def _await_person(state: FlowState, node: str) -> SideBody | Fault:
    is_incomplete = not state.run.completed.has_all(state.graph.keys_to(node))
    if is_incomplete or deliverable(state, node) or is_work_left(state, node):
        return HandoffAwaited(node)
    return Fault(
        "invalid_transition",
        "nothing is still to be handed over to it",
        "You cannot wait for a handoff: all that can be handed to you has been. Go on with it, "
        "hand back what needs better work, or hand over.",
    )


def _close_flow(state: FlowState, node: str, unhealthy: tuple[str, ...]) -> SideBody | Fault:
    found = obstacles(state, node)
    if found:
        return Fault(
            "invalid_transition",
            f"the work cannot be closed: {'; '.join(found)}",
            f"The work cannot be closed yet: {'; '.join(found)}.{_others(state, node)}",
        )
    if unhealthy:
        return Fault(
            "runtime_health",
            f"the project is not in order: {'; '.join(unhealthy)}",
            f"Before the work can be closed, put right: {'; '.join(unhealthy)}.",
        )
    return ForwardPassClosed(node)


def _others(state: FlowState, node: str) -> str:
    """Return advice for `node`, which cannot close the work because other nodes still have work."""
    if not is_work_left(state, node):
        return ""
    return " End with `type: await-handoff` to let the others go on: they may be of your own role."


def drawn_wrong(state: FlowState, node: str, faults: tuple[str, ...]) -> SideBody:
    """Return the effect of a turn of `node` (the owner) that left `faults` in the workflow file."""
    listed = "; ".join(faults)
    fault = Fault(
        "workflow_parse",
        f"the workflow file cannot be used: {listed}",
        f"The flow cannot go on with workflow.yaml as you left it: {listed}. Put it right, then "
        "end your answer as you meant to.",
    )
    return _request_repair(state, node, fault)


def _request_repair(state: FlowState, node: str, fault: Fault) -> SideBody:
    role = state.graph.role_of(node)
    asked = repair_of(state, node, role, fault)
    return asked or NodeParked(node, role, "autonomous-abort", still_wrong(fault))


def still_wrong(fault: Fault) -> str:
    """Return a text that explains to a person that the repairs did not correct `fault`."""
    return f"after {MOST_REPAIRS} repairs its turn still ends wrong: {fault.summary}"


def repair_of(state: FlowState, subject: str, role: str, fault: Fault) -> RepairAsked | None:
    """Return the request to `subject`, a node or a reviewing role, to repair `fault`.

    The result is None after `MOST_REPAIRS` repairs.
    """
    asked = state.repairs.get(subject)
    attempt = 1 if asked is None else asked.attempt + 1
    if attempt > MOST_REPAIRS:
        return None
    return RepairAsked(subject, role, fault.code, fault.summary, fault.message, attempt)
