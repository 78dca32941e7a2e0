"""Decide whether a flow can continue without a person, and return the flow's own next step."""

from __future__ import annotations

from perdure.engine.flows.documents.turn_end import last_bodies
from perdure.engine.flows.rules.closure import stall
from perdure.engine.flows.rules.improvement import feedback_path, next_step
from perdure.engine.flows.rules.parts import ready_work, running_parts
from perdure.session.flows.kinds import FeedbackAsked, FlowCompleted, NodeParked
from perdure.session.flows.run import FlowState
from perdure.session.notes import SideBody


def can_continue(state: FlowState) -> bool:
    """Return whether a role can work, or the flow can do its own next step, without a person."""
    return bool(running_parts(state) or ready_work(state) or next_bodies(state))


def next_bodies(state: FlowState) -> tuple[SideBody, ...]:
    """Return the entries that the flow itself appends when no role works; () if there are none."""
    last = last_bodies(state)
    if last:
        return last
    step = next_step(state)
    if step == "ask_for_feedback":
        return (FeedbackAsked(feedback_path(state)),)
    if step == "complete":
        return (FlowCompleted(),)
    why = stall(state)
    if why is None:
        return ()
    # A person has to act: at a node that waits, else where the work began.
    node = state.graph.node(next(iter(state.run.awaiting_handoff), state.graph.nodes[0].id))
    node = node or state.graph.nodes[0]
    return (NodeParked(node.id, node.role, "autonomous-abort", why),)
