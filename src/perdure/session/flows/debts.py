"""Track, entry by entry, which nodes of a flow have worked but still owe a handoff.

Each log entry changes the open work of only a few nodes, so the fold updates only these nodes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.session.flows.run import FlowState


def with_debts(state: FlowState) -> FlowState:
    """Return `state` with a recomputed set of the nodes that still owe a handoff."""
    return _with_debts(state, frozenset(), state.run.visited_node_ids)


def with_debts_of(state: FlowState, nodes: Iterable[str]) -> FlowState:
    """Return `state` after recomputing which of the changed `nodes` still owe a handoff."""
    return _with_debts(state, state.owing_ids, nodes)


def _with_debts(state: FlowState, known: frozenset[str], nodes: Iterable[str]) -> FlowState:
    """Recompute which of `nodes` owe a handoff.

    All other nodes in `known` still owe a handoff.
    """
    looked_at = frozenset(nodes)
    owing = known - looked_at | {node for node in looked_at if _is_owing(state, node)}
    return state if owing == state.owing_ids else msgspec.structs.replace(state, owing_ids=owing)


def _is_owing(state: FlowState, node: str) -> bool:
    run = state.run
    return node in run.visited and not run.completed.has_all(state.graph.keys_from(node))
