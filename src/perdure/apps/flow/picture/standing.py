"""How a node of a flow stands, in one word, and what came along an edge. Pure."""

from __future__ import annotations

from typing import Literal

from perdure.apps.terminal.style import Meaning
from perdure.session.flows.graph import FlowNode, edge_key
from perdure.session.flows.run import FlowState

Standing = Literal["pending", "active", "awaiting human", "backward", "completed"]

SYMBOLS: dict[Standing, tuple[str, str]] = {
    "pending": ("○", "."),
    "active": ("●", "*"),
    "awaiting human": ("?", "?"),
    "backward": ("↩", "<"),
    "completed": ("✓", "+"),
}
"""What stands for it, and what does where there is only ASCII."""

COLOURS: dict[Standing, Meaning] = {
    "pending": "faint",
    "active": "label",
    "awaiting human": "system",
    "backward": "warning",
    "completed": "good",
}


def standing(state: FlowState, node: FlowNode) -> Standing:
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
    keys = [edge_key(before, id) for before in state.graph.predecessors(id)]
    keys += [edge_key(id, after) for after in _after(state, id)]
    is_done = id in run.visited_node_ids and all(key in run.completed_handoffs for key in keys)
    is_read = not any(key.endswith(f"=>{id}") for key in run.receiving_handoff)
    return "completed" if is_done and is_read else "pending"


def _after(state: FlowState, id: str) -> tuple[str, ...]:
    return state.graph.successors(id)


def along(state: FlowState, source: str, target: str) -> tuple[str, bool]:
    """The newest artifact that went from `source` to `target`, and whether it lies unread.

    Shape: "" when nothing did.
    """
    key = edge_key(source, target)
    sent = state.run.history_handoff.get(key, ())
    return (sent[-1] if sent else ""), key in state.run.receiving_handoff
