"""Decide what happens in the flow of a workflow document when a turn has ended.

The answer of a node is handed to all nodes that follow it. If a node gives no answer, it waits for
a person.
"""

from __future__ import annotations

from perdure.engine.flows.rules.handoffs import Artifact
from perdure.engine.flows.rules.node_end import Ended, unless_stopped, why_parked
from perdure.session.flows.graph import edge_key
from perdure.session.flows.kinds import (
    FlowCompleted,
    HandoffMade,
    HandoffTarget,
    NodeParked,
    NodePassed,
)
from perdure.session.flows.run import FlowState
from perdure.session.notes import SideBody

CUT_OFF = "its answer was cut off at the model's limit; a reply has it go on"


def answer_path(node: str) -> str:
    """Return the path of the answer of `node`, relative to the record folder."""
    return f"outputs/{node}.md"


def input_path(node: str) -> str:
    """Return the path of the inputs of the input node `node`, relative to the record folder."""
    return f"inputs/{node}.json"


def task_finished(
    state: FlowState, node: str, ended: Ended, answer: Artifact | None
) -> HandoffMade | NodeParked:
    """Return the entry that hands the answer of `node` over, or that parks `node`.

    `ended` is how the turn of `node` ended; `answer` is None if the answer has no text.
    """
    role = state.graph.role_of(node)
    ended = unless_stopped(state, ended, node, role)
    if ended.end == "length":
        return NodeParked(node, role, "autonomous-abort", CUT_OFF)
    if ended.end != "stop":
        return NodeParked(node, role, *why_parked(ended))
    if answer is None:
        return NodeParked(node, role, "autonomous-abort", "its answer has no text")
    if answer.problem is not None:
        return NodeParked(node, role, "autonomous-abort", f"its answer: {answer.problem}")
    after = state.graph.successors(node)
    return HandoffMade(node, tuple(HandoffTarget(t, answer.path, answer.digest) for t in after))


def is_done(state: FlowState, node: str) -> bool:
    """Whether `node` has worked and made all of its handoffs."""
    run, keys = state.run, state.graph.keys_from(node)
    busy = (*run.running_nodes, *run.awaiting_human_nodes, *run.awaiting_handoff)
    return node in run.visited and node not in busy and run.completed.has_all(keys)


def last_bodies(state: FlowState) -> tuple[SideBody, ...]:
    """Return the entries that complete the flow; () if work is left.

    The entries are one ``node_passed`` for each output node, and ``flow_completed``.
    """
    document = state.document
    if document is None or state.run.status != "running":
        return ()
    outputs = [id for id in document.passive if id not in state.run.visited]
    if not all(is_done(state, node.id) for node in state.graph.nodes if node.id not in outputs):
        return ()
    return (*(NodePassed(id) for id in outputs), FlowCompleted())


def digest_of(state: FlowState, node: str) -> str | None:
    """Return the hash of the answer that `node` handed over; None without such an answer."""
    for after in state.graph.successors(node):
        found = state.digests.get(edge_key(node, after), ())
        if found:
            return found[-1]
    return None
