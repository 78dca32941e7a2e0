"""Decide whether the work of a flow can be closed, and why a flow cannot make progress."""

from __future__ import annotations

from collections.abc import Iterator

from perdure.engine.flows.rules.ready_nodes import is_more_to_come, ready, runnable
from perdure.engine.flows.rules.structure import OWNER
from perdure.session.flows.graph import edge_key
from perdure.session.flows.run import FlowState


def obstacles(state: FlowState, node: str) -> list[str]:
    """Return why `node` cannot close the work of the flow, as sentences; empty if it can."""
    return [*_wrong_node(state, node), *_unfinished_work(state, node)]


def _wrong_node(state: FlowState, node: str) -> Iterator[str]:
    known = state.graph.node(node)
    if known is None or known.role != OWNER:
        yield f"only a node of the role {OWNER} closes the work"
    if state.graph.successors(node):
        yield f"node {node} still hands over to others"


def _unfinished_work(state: FlowState, node: str) -> Iterator[str]:
    run = state.run
    yield from (f"node {id} is at work" for id in run.running_nodes if id != node)
    yield from (f"node {id} waits for a person" for id in run.awaiting_human_nodes if id != node)
    yield from (f"a reply to node {id} has not been read" for id in run.pending_human_inputs)
    # A node with all its inputs waits for the closure, like another last node.
    yield from (
        f"node {id} waits for a handoff"
        for id in run.awaiting_handoff
        if is_more_to_come(state, id)
    )
    yield from (
        f"nothing was handed over along {edge.key}"
        for edge in state.graph.edges
        if edge.key not in run.completed
    )
    yield from (
        f"what was handed over along {key} has not been read" for key in run.receiving_handoff
    )


def is_work_left(state: FlowState, node: str) -> bool:
    """Return whether nodes other than `node` run, can run, or have unread handoffs.

    Shape: if `node` has successors, the result is False, because a node with successors never waits
    for the chance to close the work. While `node` waits, its role can work at the role's other
    nodes, so the work at those nodes counts, too.
    """
    run = state.run
    if state.graph.successors(node):
        return False
    busy = (
        *run.running_nodes,
        *run.received,
        *(work.node.id for work in ready(state)),
    )
    return any(id != node for id in busy)


def stall(state: FlowState) -> str | None:
    """Return why the flow is stalled; None if it is not stalled.

    A flow is not stalled while it waits for a person, because an answer in the inbox can continue
    the flow.
    """
    run = state.run
    if run.status != "running" or run.improvement_phase is not None:
        return None
    if run.running_nodes or run.awaiting_human_nodes or runnable(state):
        return None
    waiting = [f"{id} waits for a handoff" for id in run.awaiting_handoff]
    joining = [
        f"{node.id} waits for {source}"
        for node in state.graph.nodes
        if node.awaits_all_inputs
        for source in state.graph.predecessors(node.id)
        if edge_key(source, node.id) not in run.completed
    ]
    reasons = [*waiting, *joining] or ["every node has done its work, and nobody closed it"]
    return f"no node can go on: {'; '.join(reasons)}"
