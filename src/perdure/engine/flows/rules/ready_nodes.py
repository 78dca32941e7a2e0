"""The nodes of a flow that can run now, and why each of them can run.

The nodes that can run are computed from the state on every pass, so none of them is forgotten. At
most one node of a role instance runs at a time, because the nodes share its session.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from perdure.session.flows.graph import FlowNode, edge_key, ends_of
from perdure.session.flows.kinds import ClaimCause
from perdure.session.flows.run import AwaitingHuman, FlowState

_WOKEN_BY_HANDOFF = "prompt-human"
"""The only kind of wait for a person that a handoff can end."""


class Work(msgspec.Struct, frozen=True):
    """A node whose work a turn can begin. The class ``NodeClaimed`` documents the fields."""

    node: FlowNode
    cause: ClaimCause
    delivered: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    text: str | None = None

    @property
    def target(self) -> str:
        """The node, which is the target of a wait for a person during this work."""
        return self.node.id

    @property
    def role(self) -> str:
        """The role instance that runs the node."""
        return self.node.role

    def paths(self, state: FlowState) -> tuple[str, ...]:
        """Return the artifacts that are delivered when this work begins."""
        receiving = state.run.receiving_handoff
        return tuple(path for key in self.delivered for path in receiving.get(key, ()))


def runnable(state: FlowState) -> tuple[Work, ...]:
    """Return all work that can begin now, by priority, at most one node per role instance."""
    if state.run.status != "running" or state.run.improvement_phase is not None:
        return ()
    occupied = _busy_nodes(state)
    chosen: dict[str, Work] = {}
    for work in ready(state):
        role = work.node.role
        # A node can continue while it waits: its own wait does not make its role busy.
        if role not in chosen and occupied.get(role, set()) <= {work.node.id}:
            chosen[role] = work
    return tuple(chosen.values())


def _busy_nodes(state: FlowState) -> dict[str, set[str]]:
    """Map each role instance to its nodes that run or wait for a person."""
    occupied: dict[str, set[str]] = {}
    for id in (*state.run.running_nodes, *state.run.awaiting_human_nodes):
        waiting = state.run.awaiting_human_nodes.get(id)
        node = state.graph.node(id)
        role = waiting.role if waiting else node.role if node else ""
        occupied.setdefault(role, set()).add(id)
    return occupied


def ready(state: FlowState) -> Iterator[Work]:
    """Yield all work that can begin, by priority, even if the role is busy."""
    seen: set[str] = set(state.run.running_nodes)
    for work in (
        *_answered_work(state),
        *_start_work(state),
        *_owing(state),
        *_handoff_work(state),
    ):
        if work.node.id not in seen:
            seen.add(work.node.id)
            yield work


def _answered_work(state: FlowState) -> Iterator[Work]:
    """Yield the work of waiting nodes that got a reply, or whose role was configured."""
    run = state.run
    for id in (*run.awaiting_human_nodes, *run.awaiting_handoff):
        node, said = state.graph.node(id), run.pending_human_inputs.get(id)
        if node is not None and said is not None and not _is_unconfigured(state, id):
            # For a document's node, the reply replaces a message that could not be delivered.
            handed = () if state.document is None else deliverable(state, id)
            yield Work(node, "reply", handed, text=said.text)
    for id, waiting in run.awaiting_human_nodes.items():
        node = state.graph.node(id)
        if node is not None and is_configured(state, waiting):
            yield Work(node, "configuration", *_delivery(state, id))


def is_configured(state: FlowState, waiting: AwaitingHuman) -> bool:
    """Return whether the model and the skills of a waiting role are chosen already.

    If the model and the skills are chosen, the role waits only for a process that continues it.
    """
    return waiting.reason == "role-configuration" and waiting.role in state.roles


def _is_unconfigured(state: FlowState, id: str) -> bool:
    """Whether node `id` waits until a person has configured its role."""
    waiting = state.run.awaiting_human_nodes.get(id)
    if waiting is None or waiting.reason != "role-configuration":
        return False
    return waiting.role not in state.roles


def _start_work(state: FlowState) -> Iterator[Work]:
    for id in state.start:
        node = state.graph.node(id)
        if node is not None and id not in state.run.awaiting_human_nodes:
            yield Work(node, "start")


def _owing(state: FlowState) -> Iterator[Work]:
    """Yield nodes that have worked and must still make a handoff, or repeat a returned handoff.

    A node that waits for a handoff is included if, after a change of the graph, it can no longer
    receive one.
    """
    for node in _free(state, state.owing):
        if not _is_joining(state, node):
            delivered, superseded = _delivery(state, node.id)
            yield Work(node, "handoff" if delivered else "owed", delivered, superseded)


def _handoff_work(state: FlowState) -> Iterator[Work]:
    """Yield nodes that received a handoff."""
    run = state.run
    for node in state.graph.in_order(run.received):
        waiting = run.awaiting_human_nodes.get(node.id)
        if waiting is not None and (
            waiting.reason != _WOKEN_BY_HANDOFF or node.id in run.pending_human_inputs
        ):
            continue
        delivered, superseded = _delivery(state, node.id)
        if delivered and not _is_joining(state, node):
            yield Work(node, "handoff", delivered, superseded)


def _free(state: FlowState, nodes: Iterable[FlowNode]) -> Iterator[FlowNode]:
    run = state.run
    for node in nodes:
        is_busy = node.id in run.running_nodes or node.id in run.awaiting_human_nodes
        is_busy = is_busy or node.id in state.start
        if not is_busy and not (
            node.id in run.awaiting_handoff and is_more_to_come(state, node.id)
        ):
            yield node


def is_more_to_come(state: FlowState, id: str) -> bool:
    """Return whether node `id` has an unread handoff, or can still receive one."""
    return id in state.run.received or not state.run.completed.has_all(state.graph.keys_to(id))


def _is_joining(state: FlowState, node: FlowNode) -> bool:
    """Return whether the node must wait for more inputs, even if it has worked before."""
    if not node.awaits_all_inputs:
        return False
    has_backward = any(
        state.graph.has_edge(node.id, ends_of(key)[0]) for key in deliverable(state, node.id)
    )
    return not has_backward and not state.run.completed.has_all(state.graph.keys_to(node.id))


def deliverable(state: FlowState, id: str) -> tuple[str, ...]:
    """Return the keys of the handoffs that are ready for node `id` and can be delivered.

    If the node handed work back to a predecessor, the predecessor withdraws its own handoffs as
    soon as it receives the work. Until the predecessor withdraws its handoffs, the result excludes
    them.
    """
    receiving = state.run.receiving_handoff
    keys: list[str] = []
    for key in state.run.received.get(id, ()):
        source, _ = ends_of(key)
        is_forward = state.graph.has_edge(source, id)
        if not (is_forward and edge_key(id, source) in receiving):
            keys.append(key)
    return tuple(keys)


def _delivery(state: FlowState, id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the handoffs that node `id` receives when it begins, and those it withdraws."""
    delivered = deliverable(state, id)
    superseded = tuple(
        key
        for key in (edge_key(id, ends_of(sent)[0]) for sent in delivered)
        if state.graph.has_edge(*ends_of(key)) and key in state.run.receiving_handoff
    )
    return delivered, superseded
