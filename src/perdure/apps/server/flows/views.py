"""Converts the state of a flow to values of the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from perdure.apps.flow.picture.render import along, overlaid, standing
from perdure.apps.server.flows.values import (
    FindingsView,
    FlowConsentView,
    FlowEdgeView,
    FlowNodeView,
    FlowRoleView,
    FlowSummary,
    FlowView,
    FlowWaitView,
    ImprovementView,
    NodeState,
)
from perdure.apps.server.values import time_of
from perdure.apps.server.views import view_of
from perdure.engine.flows.rules.flow_waits import FlowWait
from perdure.session.flows.graph import FlowNode, edge_key
from perdure.session.flows.run import FEEDBACK_ROLE, FlowState, ImprovementPhase

_ORDER: tuple[NodeState, ...] = ("active", "waiting", "backward", "pending", "completed")
"""The order of precedence: of several states, a role shows the first one in this order."""


def summary_of(
    state: FlowState, waiting: Sequence[FlowWait], *, is_running: bool, started_at: int
) -> FlowSummary:
    """Return `state` in the form for a list of flows. Units: `started_at` is Unix milliseconds."""
    shown = overlaid(state, waiting)
    return FlowSummary(
        id=state.run.flow_id,
        name=_name(state),
        status=state.run.status,
        is_running=is_running,
        waits=len(waiting),
        nodes=dict(Counter(_state(shown, node) for node in shown.graph.nodes)),
        workspace=state.run.workspace_root,
        started_at=time_of(started_at),
    )


def flow_view(
    state: FlowState,
    waiting: Sequence[FlowWait],
    *,
    is_running: bool,
    can_resume: bool,
    faults: Sequence[str],
    error: str | None,
) -> FlowView:
    """Return all data of a flow except its feeds."""
    shown = overlaid(state, waiting)
    nodes = [_node(shown, node) for node in shown.graph.nodes]
    return FlowView(
        id=state.run.flow_id,
        name=_name(state),
        status=state.run.status,
        head=state.head,
        is_running=is_running,
        can_resume=can_resume,
        workspace=state.run.workspace_root,
        record_folder=state.run.record_folder_path,
        nodes=nodes,
        edges=[_edge(shown, each.source, each.target) for each in shown.graph.edges],
        roles=_roles(shown, nodes),
        waits=[_wait(each) for each in waiting],
        consent=FlowConsentView(
            mode=state.consent.mode,
            commands=list(state.consent.bash.allowed_commands),
            tools=list(state.consent.mcp.allowed_tools),
        ),
        improvement=_improvement(state),
        faults=list(faults),
        error=error,
    )


def _name(state: FlowState) -> str:
    return state.run.record_name or state.graph.name


def _state(state: FlowState, node: FlowNode) -> NodeState:
    found = standing(state, node)
    return "waiting" if found == "awaiting human" else found


def _node(state: FlowState, node: FlowNode) -> FlowNodeView:
    waiting = state.run.awaiting_human_nodes.get(node.id)
    return FlowNodeView(
        id=node.id,
        role=node.role,
        state=_state(state, node),
        reason=None if waiting is None else waiting.reason,
        session=state.sessions.get(node.role),
    )


def _edge(state: FlowState, source: str, target: str) -> FlowEdgeView:
    returned, is_asked = along(state, target, source)
    artifact, is_unread = along(state, source, target)
    is_done = edge_key(source, target) in state.run.completed
    if is_asked:
        return FlowEdgeView(source=source, target=target, state="back", artifact=returned)
    return FlowEdgeView(
        source=source,
        target=target,
        state=("unread" if is_unread else "done") if is_done else "plain",
        artifact=artifact if is_done else None,
    )


def _roles(state: FlowState, nodes: Sequence[FlowNodeView]) -> list[FlowRoleView]:
    """Return the roles of the graph, then the feedback role if it has a session."""
    phase = state.run.improvement_phase
    found: list[FlowRoleView] = []
    for role in dict.fromkeys((*state.graph.roles, *state.sessions)):
        states: set[NodeState] = {"completed", *(n.state for n in nodes if n.role == role)}
        if phase is not None and phase.mode is not None and state.run.status != "completed":
            states = {_looks_back(phase, role)}
        first = min(states, key=_ORDER.index)
        found.append(FlowRoleView(role=role, state=first, session=state.sessions.get(role)))
    return found


def _wait(waiting: FlowWait) -> FlowWaitView:
    offers = waiting.offers
    return view_of(
        FlowWaitView,
        waiting,
        choices=list(waiting.choices),
        models=[] if offers is None else list(offers.models),
        skills={} if offers is None else dict(offers.skills),
    )


def _improvement(state: FlowState) -> ImprovementView | None:
    phase = state.run.improvement_phase
    if phase is None:
        return None
    order = state.improvement
    roles = [] if order is None else [node.id for node in order.nodes]
    if FEEDBACK_ROLE in state.sessions:
        roles.append(FEEDBACK_ROLE)
    return ImprovementView(
        mode=phase.mode,
        status=phase.status,
        roles=[
            FindingsView(
                role=role,
                state=_looks_back(phase, role),
                session=state.sessions.get(role),
                findings=phase.findings_produced.get(role),
            )
            for role in roles
        ],
        edges=[]
        if order is None
        else [
            FlowEdgeView(
                source=each.source,
                target=each.target,
                state="done" if each.source in phase.completed_roles else "plain",
            )
            for each in order.edges
        ],
        feedback_path=phase.feedback_artifact_path,
        feedback_consent=phase.feedback_consent,
    )


def _looks_back(phase: ImprovementPhase, role: str) -> NodeState:
    if role in phase.completed_roles or phase.status == "completed":
        return "completed"
    if role in phase.running_roles:
        return "active"
    return "waiting" if role in phase.awaiting_human_roles else "pending"
