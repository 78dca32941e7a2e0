"""The fold of a flow's log: how each entry changes the flow's state.

The fold is a table with one small function per kind. The fold makes no decisions and rejects
nothing, because everything in the log has already happened. Every process therefore computes the
same state from the same log. The time to fold a new entry does not depend on the length of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from perdure.errors import CorruptLog
from perdure.session.clock import timestamp
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.flows.consent import consent_after, withheld
from perdure.session.flows.debts import with_debts, with_debts_of
from perdure.session.flows.edge_history import EdgeHistory
from perdure.session.flows.graph import base_role, edge_key, ends_of
from perdure.session.flows.initial_state import initial_state
from perdure.session.flows.run import (
    FEEDBACK_ROLE,
    IMPROVEMENT_FILE,
    ITSELF,
    Asked,
    AwaitingHuman,
    Declined,
    FlowState,
    HumanInput,
    ImprovementPhase,
    RoleConfiguration,
)

T = TypeVar("T")

replace = msgspec.structs.replace


def flow_state(
    log: Iterable[tuple[Entry, object]], is_own: Callable[[Entry], bool] = lambda _: True
) -> FlowState:
    """Return the state of a flow after all entries of `log`.

    Each entry of `log` comes with its decoded body. `is_own` returns True for an entry that this
    user's perdure wrote or that this user trusts.
    Raises: CorruptLog if the log does not start with a ``flow_started`` entry or an import.
    """
    entries = iter(log)
    first = next(entries, None)
    if first is None:
        raise CorruptLog("", 0, "a flow's log holds at least one entry")
    return follow(initial_state(*first, is_own), entries, is_own)


def follow(
    state: FlowState,
    log: Iterable[tuple[Entry, object]],
    is_own: Callable[[Entry], bool] = lambda _: True,
) -> FlowState:
    """Return `state` updated with `log`, the next entries of the flow's log.

    Each entry of `log` comes with its decoded body. The running time depends only on the added
    entries, not on the number of artifacts sent before.
    """
    history, digests = EdgeHistory(state.run.history_handoff), EdgeHistory(state.digests)
    for entry, body in log:
        state = _after(state, entry, body, is_own=is_own(entry))
        if isinstance(body, kinds.HandoffMade | kinds.NodePassed):
            for target in body.targets:
                key = edge_key(body.node, target.node)
                history.add(key, target.artifact)
                if target.digest is not None:
                    digests.add(key, target.digest)
    if (passed := history.after()) is not state.run.history_handoff:
        state = _with(replace(state, digests=digests.after()), history_handoff=passed)
    return state


def state_after(state: FlowState, entry: Entry, body: object, *, is_own: bool = True) -> FlowState:
    """Return `state` after one more entry of its log. `body` is the decoded body of the entry.

    If `is_own` is False (the user neither wrote nor trusts the entry), the flow's consent and its
    folder are no longer in force.
    """
    return follow(state, [(entry, body)], lambda _: is_own)


def _after(state: FlowState, entry: Entry, body: object, *, is_own: bool) -> FlowState:
    """Return `state` after one more entry, without updating the artifacts sent along edges."""
    apply = _APPLY.get(type(body))
    state = replace(state, head=entry.seq)
    if apply is None:
        return state
    in_force, settings = state.consent_in_force, state.settings
    state = apply(state, body, entry.at)
    if not is_own:
        return withheld(replace(state, settings=settings))
    if isinstance(body, kinds.ConsentChanged) and in_force is not None:
        return replace(state, consent_in_force=consent_after(in_force, body, entry.at))
    if isinstance(body, kinds.WorkspaceBound):
        return replace(state, is_place_in_force=True)
    return state


# ---------------------------------------------------------------- settings, workspace and graph


def _run_settings(state: FlowState, body: kinds.RunSettings, _: int) -> FlowState:
    return replace(state, settings=body)


def _workspace_bound(state: FlowState, body: kinds.WorkspaceBound, _: int) -> FlowState:
    return _with(state, workspace_root=body.workspace_root, record_folder_path=body.record_folder)


def _workflow_changed(state: FlowState, body: kinds.WorkflowChanged, _: int) -> FlowState:
    return with_debts(replace(state, graph=body.graph))


def _document_bound(state: FlowState, body: kinds.DocumentBound, _: int) -> FlowState:
    return replace(state, document=body)


def _role_configured(state: FlowState, body: kinds.RoleConfigured, _: int) -> FlowState:
    before = state.chosen_in_part.get(body.role, RoleConfiguration())
    chosen = RoleConfiguration(
        before.model if body.model is None else body.model,
        before.skills if body.skills is None else body.skills,
        body.tools,
        body.is_automatic,
    )
    state = replace(state, selecting=_without(state.selecting, body.role))
    if body.is_partial:
        return replace(state, chosen_in_part=state.chosen_in_part | {body.role: chosen})
    in_part = _without(state.chosen_in_part, body.role)
    return replace(state, roles=state.roles | {body.role: chosen}, chosen_in_part=in_part)


def _selector_opened(state: FlowState, body: kinds.SelectorOpened, _: int) -> FlowState:
    known = (*state.selectors.get(body.role, ()), body.session)
    return replace(
        state,
        selecting=state.selecting | {body.role: body},
        selectors=state.selectors | {body.role: known},
    )


def _consent_changed(state: FlowState, body: kinds.ConsentChanged, at: int) -> FlowState:
    return _with(state, consent_state=consent_after(state.run.consent_state, body, at))


# ---------------------------------------------------------------- nodes


def _node_claimed(state: FlowState, body: kinds.NodeClaimed, _: int) -> FlowState:
    run, node = state.run, body.node
    run = replace(
        run,
        running_nodes=_with_item(run.running_nodes, node),
        visited_node_ids=run.visited.plus(node),
        awaiting_human_nodes=_without(run.awaiting_human_nodes, node),
        awaiting_handoff=_without_item(run.awaiting_handoff, node),
        receiving_handoff=_without(run.receiving_handoff, *body.delivered, *body.superseded),
        completed_handoffs=run.completed.without(*body.superseded),
    )
    if body.text is not None:
        run = replace(run, pending_human_inputs=_without(run.pending_human_inputs, node))
    state = replace(
        state,
        run=run,
        start=_without_item(state.start, node),
        sessions=state.sessions | {body.role: body.session},
        at_node=state.at_node | {body.role: node},
        declined=_without(state.declined, node),
        repairs=_without(state.repairs, node) if body.text is not None else state.repairs,
    )
    return with_debts_of(state, [node, *(ends_of(key)[0] for key in body.superseded)])


def _node_parked(state: FlowState, body: kinds.NodeParked, at: int) -> FlowState:
    waiting = AwaitingHuman(body.role, body.reason, body.detail)
    state = _await_person(state, body.node, at, body.offers)
    state = _with_ended_turn(state, body.node, body.role)
    if body.reason == "role-configuration":  # the earlier choice is no longer available
        state = replace(
            state,
            roles=_without(state.roles, body.role),
            selecting=_without(state.selecting, body.role),
        )
    inputs = state.run.pending_human_inputs
    return _with(
        state,
        running_nodes=_without_item(state.run.running_nodes, body.node),
        awaiting_handoff=_without_item(state.run.awaiting_handoff, body.node),
        awaiting_human_nodes=state.run.awaiting_human_nodes | {body.node: waiting},
        pending_human_inputs=inputs if body.keeps_reply else _without(inputs, body.node),
    )


def _node_continued(state: FlowState, body: kinds.NodeContinued, _: int) -> FlowState:
    return _with(
        state,
        running_nodes=_with_item(state.run.running_nodes, body.node),
        awaiting_human_nodes=_without(state.run.awaiting_human_nodes, body.node),
    )


def _human_replied(state: FlowState, body: kinds.HumanReplied, at: int) -> FlowState:
    said = HumanInput(body.text, timestamp(at))
    phase = state.run.improvement_phase
    if phase is not None:
        inputs = phase.pending_human_inputs | {body.target: said}
        return _with_phase(state, pending_human_inputs=inputs)
    return _with(state, pending_human_inputs=state.run.pending_human_inputs | {body.target: said})


def _stop_asked(state: FlowState, body: kinds.StopAsked, _: int) -> FlowState:
    return replace(state, stopping=_with_item(state.stopping, body.target))


def _repair_asked(state: FlowState, body: kinds.RepairAsked, _: int) -> FlowState:
    return replace(state, repairs=state.repairs | {body.node: body})


# ---------------------------------------------------------------- handoffs


def _handoff_made(state: FlowState, body: kinds.HandoffMade, _: int) -> FlowState:
    run, receiving = state.run, dict(state.run.receiving_handoff)
    completed, is_sent_back = run.completed, False
    for target in body.targets:
        key = edge_key(body.node, target.node)
        if state.document is None or target.node not in state.document.passive:
            receiving[key] = (*receiving.get(key, ()), target.artifact)
        if state.graph.has_edge(body.node, target.node):
            completed = completed.plus(key)
        else:
            completed = completed.without(edge_key(target.node, body.node))
            is_sent_back = True
    waiting = run.awaiting_handoff
    run = replace(
        run,
        running_nodes=_without_item(run.running_nodes, body.node),
        awaiting_human_nodes=_without(run.awaiting_human_nodes, body.node),
        pending_handoff_approvals=_without(run.pending_handoff_approvals, body.node),
        receiving_handoff=receiving,
        completed_handoffs=completed,
        awaiting_handoff=_with_item(waiting, body.node) if is_sent_back else waiting,
    )
    role = state.graph.role_of(body.node)
    state = _with_ended_turn(replace(state, run=run), body.node, role)
    return with_debts_of(state, [body.node, *(target.node for target in body.targets)])


def _node_passed(state: FlowState, body: kinds.NodePassed, at: int) -> FlowState:
    state = _handoff_made(state, kinds.HandoffMade(body.node, body.targets), at)
    state = _with(state, visited_node_ids=state.run.visited.plus(body.node))
    return with_debts_of(state, [body.node])


def _handoff_awaited(state: FlowState, body: kinds.HandoffAwaited, _: int) -> FlowState:
    run = state.run
    return _with(
        replace(state, repairs=_without(state.repairs, body.node)),
        running_nodes=_without_item(run.running_nodes, body.node),
        awaiting_handoff=_with_item(run.awaiting_handoff, body.node),
    )


def _handoff_staged(state: FlowState, body: kinds.HandoffStaged, at: int) -> FlowState:
    state = _await_person(state, body.node, at)
    state = replace(state, repairs=_without(state.repairs, body.node))
    run = state.run
    waiting = AwaitingHuman(body.role, "handoff-approval")
    return _with(
        state,
        running_nodes=_without_item(run.running_nodes, body.node),
        awaiting_human_nodes=run.awaiting_human_nodes | {body.node: waiting},
        pending_handoff_approvals=run.pending_handoff_approvals | {body.node: body.targets},
    )


def _handoff_declined(state: FlowState, body: kinds.HandoffDeclined, at: int) -> FlowState:
    state = _await_person(state, body.node, at)
    run = state.run
    waiting = AwaitingHuman(body.role, "prompt-human", body.note)
    targets = run.pending_handoff_approvals.get(body.node, ())
    declined = Declined(targets, body.by, body.note)
    return _with(
        replace(state, declined=state.declined | {body.node: declined}),
        awaiting_human_nodes=run.awaiting_human_nodes | {body.node: waiting},
        pending_handoff_approvals=_without(run.pending_handoff_approvals, body.node),
    )


# ---------------------------------------------------------------- closing and reviews


def _on_closed(state: FlowState, body: kinds.ForwardPassClosed, at: int) -> FlowState:
    # In the improvement, roles wait under their own name, because a finished node may wait too.
    state = replace(_await_person(state, ITSELF, at), repairs={}, stopping=())
    is_single = len({base_role(role) for role in state.graph.roles}) <= 1
    phase = ImprovementPhase("awaiting_choice", single_role=is_single)
    return _with(
        state,
        status="awaiting_improvement_choice",
        running_nodes=_without_item(state.run.running_nodes, body.node),
        awaiting_handoff=(),
        improvement_phase=phase,
    )


def _improvement_chosen(state: FlowState, body: kinds.ImprovementChosen, _: int) -> FlowState:
    status = "skipped" if body.mode == "none" else "running"
    state = _with_phase(state, status=status, mode=body.mode)
    return replace(_with(state, status="running"), improvement=body.graph)


def _improvement_claimed(state: FlowState, body: kinds.ImprovementClaimed, _: int) -> FlowState:
    phase = _phase(state)
    inputs = phase.pending_human_inputs
    is_drawn = state.improvement is not None and phase.improvement_workflow_path is None
    path = state.run.in_workspace(IMPROVEMENT_FILE) if is_drawn else phase.improvement_workflow_path
    state = _with_phase(
        state,
        improvement_workflow_path=path,
        running_roles=_with_item(phase.running_roles, body.role),
        awaiting_human_roles=_without(phase.awaiting_human_roles, body.role),
        pending_human_inputs=inputs if body.text is None else _without(inputs, body.role),
    )
    repairs = state.repairs if body.text is None else _without(state.repairs, body.role)
    return replace(state, sessions=state.sessions | {body.role: body.session}, repairs=repairs)


def _improvement_parked(state: FlowState, body: kinds.ImprovementParked, at: int) -> FlowState:
    state = _await_person(state, body.role, at)
    phase = _phase(state)
    waiting = AwaitingHuman(body.role, body.reason, body.detail)
    state = _with_ended_turn(state, body.role)
    inputs = phase.pending_human_inputs
    return _with_phase(
        state,
        running_roles=_without_item(phase.running_roles, body.role),
        awaiting_human_roles=phase.awaiting_human_roles | {body.role: waiting},
        pending_human_inputs=inputs if body.keeps_reply else _without(inputs, body.role),
    )


def _findings_made(state: FlowState, body: kinds.FindingsMade, _: int) -> FlowState:
    phase = _phase(state)
    state = replace(state, repairs=_without(state.repairs, body.role))
    state = _with_phase(state, running_roles=_without_item(phase.running_roles, body.role))
    if body.role == FEEDBACK_ROLE:
        return replace(state, is_feedback_written=True)
    findings = state.run.in_workspace(body.findings)
    return _with_phase(
        state,
        completed_roles=_with_item(phase.completed_roles, body.role),
        findings_produced=phase.findings_produced | {body.role: findings},
    )


def _feedback_asked(state: FlowState, body: kinds.FeedbackAsked, at: int) -> FlowState:
    state = _with_phase(
        _await_person(state, ITSELF, at),
        status="awaiting_feedback_consent",
        feedback_artifact_path=body.artifact,
        feedback_consent="pending",
    )
    return _with(state, status="awaiting_feedback_consent")


def _feedback_decided(state: FlowState, body: kinds.FeedbackDecided, _: int) -> FlowState:
    consent = "granted" if body.is_granted else "denied"
    state = _with_phase(state, status="running", feedback_consent=consent)
    return _with(state, status="running")


def _on_completed(state: FlowState, _: kinds.FlowCompleted, __: int) -> FlowState:
    phase = state.run.improvement_phase
    if phase is not None and phase.status != "skipped":
        state = _with_phase(state, status="completed", running_roles=())
    return _with(state, status="completed", running_nodes=())


_APPLY: Mapping[type[object], Callable[[FlowState, Any, int], FlowState]] = {
    kinds.RunSettings: _run_settings,
    kinds.WorkspaceBound: _workspace_bound,
    kinds.WorkflowChanged: _workflow_changed,
    kinds.NodeClaimed: _node_claimed,
    kinds.NodeParked: _node_parked,
    kinds.NodeContinued: _node_continued,
    kinds.HumanReplied: _human_replied,
    kinds.StopAsked: _stop_asked,
    kinds.HandoffMade: _handoff_made,
    kinds.HandoffAwaited: _handoff_awaited,
    kinds.HandoffStaged: _handoff_staged,
    kinds.HandoffDeclined: _handoff_declined,
    kinds.RepairAsked: _repair_asked,
    kinds.ConsentChanged: _consent_changed,
    kinds.RoleConfigured: _role_configured,
    kinds.SelectorOpened: _selector_opened,
    kinds.ForwardPassClosed: _on_closed,
    kinds.ImprovementChosen: _improvement_chosen,
    kinds.ImprovementClaimed: _improvement_claimed,
    kinds.ImprovementParked: _improvement_parked,
    kinds.FindingsMade: _findings_made,
    kinds.FeedbackAsked: _feedback_asked,
    kinds.FeedbackDecided: _feedback_decided,
    kinds.FlowCompleted: _on_completed,
    kinds.DocumentBound: _document_bound,
    kinds.NodePassed: _node_passed,
}


# ---------------------------------------------------------------- small steps


def _await_person(
    state: FlowState, target: str, at: int, offers: kinds.Offers | None = None
) -> FlowState:
    """Return `state` after `target` (a node, a role or the flow) began to wait for a person."""
    return replace(state, asked=state.asked | {target: Asked(state.head, at, offers)})


def _with_ended_turn(state: FlowState, target: str, *names: str) -> FlowState:
    """Remove requests to stop or repair `target`, and requests to stop the roles `names`."""
    return replace(
        state,
        stopping=_without_item(state.stopping, target, *names),
        repairs=_without(state.repairs, target),
    )


def _with(state: FlowState, **changes: Any) -> FlowState:
    return replace(state, run=replace(state.run, **changes))


def _phase(state: FlowState) -> ImprovementPhase:
    return state.run.improvement_phase or ImprovementPhase("running")


def _with_phase(state: FlowState, **changes: Any) -> FlowState:
    return _with(state, improvement_phase=replace(_phase(state), **changes))


def _with_item(items: tuple[str, ...], item: str) -> tuple[str, ...]:
    return items if item in items else (*items, item)


def _without_item(items: tuple[str, ...], *gone: str) -> tuple[str, ...]:
    if not any(each in items for each in gone):
        return items
    return tuple(item for item in items if item not in gone)


def _without(items: Mapping[str, T], *keys: str) -> dict[str, T]:
    return {key: value for key, value in items.items() if key not in keys}
