"""Decisions of people in a flow: replies, approvals, consents, and how the roles review the flow.

Each function returns the effect of the decision, or rejects the decision if the flow does not wait
for it. For every attempt to append, the function is called again with the newest state, so it
rejects a late reply, and the reply never answers another question.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from perdure.engine.flows.rules.improvement import order_by_graph, order_in_parallel
from perdure.errors import FlowRefusal
from perdure.session.flows.graph import Graph
from perdure.session.flows.kinds import (
    ConsentChanged,
    ConsentMode,
    FeedbackDecided,
    GrantedTool,
    HandoffDeclined,
    HandoffMade,
    HumanReplied,
    ImprovementChosen,
    ImprovementMode,
    RoleConfigured,
    StopAsked,
)
from perdure.session.flows.run import IMPROVEMENT_FILE, FlowState
from perdure.session.ids import StreamId

_TAKES_NO_REPLY = {
    "handoff-approval": "its handoff waits for Flow.approve or Flow.decline",
    "role-configuration": "its role waits for Flow.configure",
    "consent": "a tool call waits for consent: Store.questions",
}


def reply(
    state: FlowState,
    text: str,
    by: str,
    target: str | None = None,
    lost: Mapping[str, str] = MappingProxyType({}),
) -> HumanReplied:
    """Give the reply `text` to the node or role instance `target`.

    Without `target`, the reply goes to the only node or role that waits for a person. If no node or
    role waits for a person, the reply goes to the only node or role that waits for a handoff.
    `lost` contains the roles that cannot continue, with the reason for each.
    Raises: FlowRefusal if nothing waits for a reply, if several wait and `target` is not given, if
    the target already has a reply, if its role cannot continue, or if `text` is empty.
    """
    if not text.strip():
        raise FlowRefusal(state.run.flow_id, "there is nothing to say in the reply")
    for_person, for_handoff = _waiting(state, lost)
    if target is None:
        waiting = for_person or for_handoff
        if len(waiting) != 1:
            _require_continuable(state, waiting, lost)
            raise _refusal(state, _which(waiting, "a reply"))
        return HumanReplied(waiting[0], text, by)
    found = _addressed_node(state, target, [*for_person, *for_handoff])
    if found is None:
        role = state.graph.role_of(target)
        _require_continuable(state, (), {role: lost[role]} if role in lost else {})
        raise _refusal(state, f"{target!r} does not wait for a reply{_because(state, target)}")
    return HumanReplied(found, text, by)


def _require_continuable(state: FlowState, waiting: Sequence[str], lost: Mapping[str, str]) -> None:
    """Raise FlowRefusal with the reasons in `lost` if nothing is `waiting` and a role is lost."""
    if lost and not waiting:
        why = "; ".join(f"{role}: {why}" for role, why in lost.items())
        raise FlowRefusal(state.run.flow_id, why)


def _waiting(state: FlowState, lost: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the nodes (in the improvement phase: roles) that accept a reply.

    Shape: targets that wait for a person come first, then targets that wait for a handoff.
    """
    run, phase = state.run, state.run.improvement_phase
    if phase is not None:
        answered = {*phase.pending_human_inputs, *lost}
        return [role for role in phase.awaiting_human_roles if role not in answered], []
    of_lost = (node.id for node in state.graph.nodes if node.role in lost)
    answered = {*run.pending_human_inputs, *of_lost}
    for_person = [
        id
        for id, waiting in run.awaiting_human_nodes.items()
        if waiting.reason not in _TAKES_NO_REPLY and id not in answered
    ]
    return for_person, [id for id in run.awaiting_handoff if id not in answered]


def _addressed_node(state: FlowState, target: str, waiting: list[str]) -> str | None:
    if target in waiting:
        return target
    if state.run.improvement_phase is not None:
        return None  # a role that waits is named by its role, as a node may be, too
    of_role = [
        id for id in waiting if (node := state.graph.node(id)) is not None and node.role == target
    ]
    return of_role[0] if of_role else None


def _which(waiting: list[str], what: str) -> str:
    """Return a text that explains why a decision about `what` needs a clear target."""
    if not waiting:
        return f"nothing in it waits for {what}"
    return f"name which one: {', '.join(waiting)}" + (" wait" if len(waiting) > 1 else " waits")


def _because(state: FlowState, target: str) -> str:
    run, phase = state.run, state.run.improvement_phase
    replied, busy = (
        (run.pending_human_inputs, run.running_nodes)
        if phase is None
        else (phase.pending_human_inputs, phase.running_roles)
    )
    if target in replied:
        return ": it has been replied to"
    waiting = run.awaiting_human_nodes.get(target)
    if waiting is not None:
        return f": {_TAKES_NO_REPLY.get(waiting.reason, waiting.reason)}"
    return ": it is at work" if target in busy else ""


def stop(state: FlowState, by: str, target: str) -> StopAsked:
    """Request the end of the turn of the node or role instance `target`.

    If a selector runs for the role, the end of the selector's turn is requested.
    Raises: FlowRefusal if no turn of `target` runs.
    """
    phase, role = state.run.improvement_phase, target
    if phase is not None:
        running, roles = phase.running_roles, ()
    else:
        running = state.run.running_nodes
        roles = [node.role for node in state.graph.nodes if node.id in running]
        role = state.graph.role_of(target)
    if target in running or target in roles:
        return StopAsked(target, by)
    if role in state.selecting:
        return StopAsked(role, by)
    busy = (*running, *state.selecting)
    at_work = f"at work: {', '.join(busy)}" if busy else "no role is at work"
    raise _refusal(state, f"{target!r} is not at work ({at_work})")


def sessions_to_stop(state: FlowState) -> tuple[StreamId, ...]:
    """Return the sessions with a running turn that a person has requested to end."""
    is_looking_back = state.run.improvement_phase is not None
    found: list[StreamId] = []
    for target in state.stopping:
        role = target if is_looking_back else state.graph.role_of(target)
        chooses = state.selecting.get(role)
        session = state.sessions.get(role) if chooses is None else chooses.session
        if session is not None:
            found.append(session)
    return tuple(found)


def approve(state: FlowState, by: str, node: str | None = None) -> HandoffMade:
    """Approve a staged handoff; its artifacts are handed over as they were staged.

    Raises: FlowRefusal if no handoff waits, or if several wait and `node` is None.
    """
    found = _staged_target(state, node)
    return HandoffMade(found, state.run.pending_handoff_approvals[found], approved_by=by)


def decline(
    state: FlowState, by: str, node: str | None = None, note: str | None = None
) -> HandoffDeclined:
    """Decline a staged handoff; its node then waits for a person's reply.

    Raises: the same errors as `approve`.
    """
    found = _staged_target(state, node)
    return HandoffDeclined(found, state.run.awaiting_human_nodes[found].role, by, note)


def _staged_target(state: FlowState, node: str | None) -> str:
    staged = list(state.run.pending_handoff_approvals)
    if node is None and len(staged) == 1:
        return staged[0]
    if node is None or node not in staged:
        raise _refusal(state, _which(staged, "a handoff to be approved"))
    return node


def change_consent(
    state: FlowState,
    by: str,
    *,
    mode: ConsentMode | None = None,
    tool: GrantedTool | None = None,
    command: str | None = None,
    is_revoked: bool = False,
) -> ConsentChanged:
    """Change the consent of the flow: the calls that roles can make without asking.

    Raises: FlowRefusal if the flow is completed.
    """
    _need_work(state)
    return ConsentChanged(by, mode, tool, command, is_revoked)


def configure(
    state: FlowState,
    role: str,
    *,
    model: str | None = None,
    skills: tuple[str, ...] | None = None,
    tools: tuple[str, ...] | None = None,
    by: str | None = None,
) -> RoleConfigured:
    """Configure a role instance.

    Raises: FlowRefusal if the flow is completed or has no such role, or if `skills` differ from the
    skills with which the role's session began.
    """
    _need_work(state)
    if role not in state.graph.roles:
        known = ", ".join(state.graph.roles)
        raise FlowRefusal(state.run.flow_id, f"the workflow has no role {role!r}; it has: {known}")
    if skills is not None and role in state.sessions:
        raise FlowRefusal(
            state.run.flow_id, f"{role} has begun, and was told its skills then; they stay"
        )
    return RoleConfigured(role, model, skills, tools, by=by)


def _need_work(state: FlowState) -> None:
    """Check that roles can still work.

    Raises: FlowRefusal if the flow is completed.
    """
    if state.run.status == "completed":
        raise FlowRefusal(state.run.flow_id, "it is completed, and no role works in it any more")


def choose_improvement(state: FlowState, mode: ImprovementMode, by: str) -> ImprovementChosen:
    """Choose how the roles review the flow.

    Raises: FlowRefusal if the flow does not wait for the choice of a mode.
    """
    if state.run.status != "awaiting_improvement_choice":
        raise _refusal(state, f"it is {state.run.status} and does not wait for that choice")
    if mode == "none":
        return ImprovementChosen(mode, by)
    order: Graph = (
        order_by_graph(state.graph) if mode == "graph-based" else order_in_parallel(state.graph)
    )
    return ImprovementChosen(mode, by, IMPROVEMENT_FILE, order)


def decide_feedback(state: FlowState, by: str, *, is_granted: bool) -> FeedbackDecided:
    """Decide whether feedback is written.

    Raises: FlowRefusal if the flow does not wait for the decision about feedback.
    """
    if state.run.status != "awaiting_feedback_consent":
        raise _refusal(state, f"it is {state.run.status} and does not wait for that decision")
    return FeedbackDecided(is_granted, by)


def _refusal(state: FlowState, why: str) -> FlowRefusal:
    """Return the error for a decision that the flow does not wait for."""
    return FlowRefusal(state.run.flow_id, why, is_waiting=True)
