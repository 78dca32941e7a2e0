"""How a node of a flow stands, in one word, and what came along an edge. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from perdure.apps.terminal.style import Meaning
from perdure.engine.flows.rules.pending import FlowWait
from perdure.session.flows.graph import FlowNode, edge_key
from perdure.session.flows.run import AwaitingHuman, FlowState

NodeStanding = Literal["pending", "active", "awaiting human", "backward", "completed"]

SYMBOLS: dict[NodeStanding, tuple[str, str]] = {
    "pending": ("○", "."),
    "active": ("●", "*"),
    "awaiting human": ("?", "?"),
    "backward": ("↩", "<"),
    "completed": ("✓", "+"),
}
"""What stands for it, and what does where there is only ASCII."""

COLOURS: dict[NodeStanding, Meaning] = {
    "pending": "faint",
    "active": "label",
    "awaiting human": "system",
    "backward": "warning",
    "completed": "good",
}


def standing(state: FlowState, node: FlowNode) -> NodeStanding:
    """How `node` stands.

    ``backward``: it asked for better work and waits for it, or was asked for it. ``completed``: it
    has worked, and everything was handed over along all its edges.
    """
    run, id = state.run, node.id
    if id in run.running_nodes:
        return "active"
    if id in run.awaiting_human_nodes:
        return "awaiting human"
    is_asked = any(edge_key(after, id) in run.receiving_handoff for after in _after(state, id))
    if id in run.awaiting_handoff or is_asked:
        return "backward"
    keys = state.graph.keys_to(id) | state.graph.keys_from(id)
    is_done = id in run.visited and keys <= run.completed
    is_read = id not in run.received
    return "completed" if is_done and is_read else "pending"


def overlaid(state: FlowState, waiting: Iterable[FlowWait]) -> FlowState:
    """`state` in which a node whose role asks for consent waits for a person.

    For its flow such a node runs: the question is its turn's.
    """
    asked = {each.target: each.text for each in waiting if each.session is not None}
    run = state.run
    nodes = [n for id in run.running_nodes if (n := state.graph.node(id)) and n.role in asked]
    if not nodes:
        return state
    ids = {node.id for node in nodes}
    told = {node.id: AwaitingHuman(node.role, "consent", asked[node.role]) for node in nodes}
    run = msgspec.structs.replace(
        run,
        running_nodes=tuple(id for id in run.running_nodes if id not in ids),
        awaiting_human_nodes=run.awaiting_human_nodes | told,
    )
    return msgspec.structs.replace(state, run=run)


def is_blocked(state: FlowState, waiting: Iterable[FlowWait]) -> bool:
    """Whether all roles that are at work wait for consent."""
    phase = state.run.improvement_phase
    nodes = [state.graph.node(id) for id in state.run.running_nodes]
    roles = {node.role for node in nodes if node is not None}
    roles.update(() if phase is None else phase.running_roles)
    asked = {each.target for each in waiting if each.session is not None}
    return bool(roles) and roles <= asked


def _after(state: FlowState, id: str) -> tuple[str, ...]:
    return state.graph.successors(id)


def along(state: FlowState, source: str, target: str) -> tuple[str, bool]:
    """The newest artifact that went from `source` to `target`, and whether it lies unread.

    Shape: "" when nothing did.
    """
    key = edge_key(source, target)
    sent = state.run.history_handoff.get(key, ())
    return (sent[-1] if sent else ""), key in state.run.receiving_handoff
