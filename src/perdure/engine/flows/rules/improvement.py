"""Reviews of a flow: the order in which roles review it, and the steps after the reviews.

The order is a graph of role instances; along each edge, a role passes its findings on. Each role
begins as soon as its predecessors are done, even if other roles wait for a person.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from perdure.engine.flows.rules.structure import OWNER, sources_of
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph, base_role
from perdure.session.flows.run import FEEDBACK_ROLE, FlowState

NextStep = Literal["wait", "ask_for_feedback", "complete"]


class RoleWork(msgspec.Struct, frozen=True):
    """A role that can review the flow now.

    `findings` are the paths of the findings that the role reads, in order.
    """

    role: str
    findings: tuple[str, ...] = ()
    text: str | None = None

    @property
    def target(self) -> str:
        """The role, which is the target of a wait for a person during this review."""
        return self.role


def order_by_graph(graph: Graph) -> Graph:
    """Return a review order in which each role follows all roles that it handed work to.

    A role instance has the position of its node nearest to the start. The other nodes of the
    instance are left out, but the paths through them stay connected.
    """
    kept = _nearest(graph)
    edges = {(edge.source, edge.target) for edge in graph.edges}
    for node in graph.nodes:
        if node.id not in kept:
            edges = _shortcut(edges, node.id)
    backward = sorted((kept[target], kept[source]) for source, target in edges)
    return _order(graph, [FlowEdge(*pair) for pair in backward if pair[0] != pair[1]])


def order_in_parallel(graph: Graph) -> Graph:
    """Return a review order with all roles in parallel; the owner comes last, with all findings."""
    others = [role for role in graph.roles if role != OWNER]
    return _order(graph, [FlowEdge(role, OWNER) for role in others])


def _order(graph: Graph, edges: list[FlowEdge]) -> Graph:
    roles = dict.fromkeys((*graph.roles, OWNER))
    return Graph("improvement", tuple(FlowNode(role, role) for role in roles), tuple(edges))


def _nearest(graph: Graph) -> dict[str, str]:
    """Find the node of each role instance nearest to the start; map its id to the role instance."""
    depths: dict[str, int] = {}
    level, depth = list(sources_of(graph)), 0
    while level:
        depths.update((id, depth) for id in level if id not in depths)
        level = [s for id in level for s in graph.successors(id) if s not in depths]
        level, depth = list(dict.fromkeys(level)), depth + 1
    nearest: dict[str, FlowNode] = {}
    for node in graph.nodes:
        best = nearest.get(node.role)
        if best is None or depths.get(node.id, 0) < depths.get(best.id, 0):
            nearest[node.role] = node
    return {node.id: role for role, node in nearest.items()}


def _shortcut(edges: set[tuple[str, str]], gone: str) -> set[tuple[str, str]]:
    before = [source for source, target in edges if target == gone]
    after = [target for source, target in edges if source == gone]
    kept = {edge for edge in edges if gone not in edge}
    return kept | {(source, target) for source in before for target in after}


def findings_path(role: str) -> str:
    """Return the path of the findings of `role`, relative to the record folder."""
    return f"findings/{role}-findings.md"


def feedback_path(state: FlowState) -> str:
    """Return the path of the feedback, relative to the workspace's root."""
    context, run = state.run.feedback_context, state.run
    what = {
        "standard": "flow",
        "initialization": f"initialization-{context.initialization_mode}",
        "update": "update",
    }[context.kind]
    return f"a-society/feedback/{run.project_namespace}-{what}-{run.flow_id}.md"


def roles_to_look_back(state: FlowState) -> tuple[RoleWork, ...]:
    """Return the reviews that can begin, or continue with a person's reply, in graph order."""
    phase, order = state.run.improvement_phase, state.improvement
    if phase is None or order is None or phase.status != "running":
        return ()
    if phase.feedback_consent == "granted":
        work = None if _has_feedback(state) else _work(state, FEEDBACK_ROLE, ())
        return () if work is None else (work,)
    found: list[RoleWork] = []
    for node in order.nodes:
        before = order.predecessors(node.id)
        if all(role in phase.completed_roles for role in before):
            found_by = phase.findings_produced
            paths = tuple(found_by[role] for role in before if role in found_by)
            work = _work(state, node.id, paths)
            found += [] if work is None else [work]
    return tuple(found)


def _work(state: FlowState, role: str, findings: tuple[str, ...]) -> RoleWork | None:
    phase = state.run.improvement_phase
    if phase is None or role in phase.completed_roles or role in phase.running_roles:
        return None
    said = phase.pending_human_inputs.get(role)
    if role in phase.awaiting_human_roles and said is None:
        return None
    return RoleWork(role, findings, None if said is None else said.text)


def next_step(state: FlowState) -> NextStep:
    """Return the flow's own next step in its review phase; ``wait`` if it has none now."""
    phase, order = state.run.improvement_phase, state.improvement
    if phase is None or state.run.status != "running":
        return "wait"
    if phase.status == "skipped" or phase.feedback_consent == "denied":
        return "complete"
    if phase.feedback_consent == "granted":
        return "complete" if _has_feedback(state) else "wait"
    is_done = order is not None and all(n.id in phase.completed_roles for n in order.nodes)
    return "ask_for_feedback" if is_done else "wait"


def _has_feedback(state: FlowState) -> bool:
    """Return whether the feedback is written.

    An imported flow can record the feedback as a completed role.
    """
    phase = state.run.improvement_phase
    is_listed = phase is not None and FEEDBACK_ROLE in phase.completed_roles
    return is_listed or state.is_feedback_written


def writes_last(role: str) -> bool:
    """Return whether `role` is the owner; the project's own checks run after the owner's review."""
    return base_role(role) == OWNER
