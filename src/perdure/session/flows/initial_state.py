"""The initial state of a flow: started here, or imported with the state it had elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.errors import CorruptLog
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.flows.consent import withheld
from perdure.session.flows.run import (
    ITSELF,
    Asked,
    ConsentState,
    FeedbackContext,
    FlowRun,
    FlowState,
)

replace = msgspec.structs.replace


def initial_state(entry: Entry, body: object, is_own: Callable[[Entry], bool]) -> FlowState:
    """Where a flow stands after the first entry of its log, with its decoded body.

    `is_own` says whether it gives authority; what was imported never does.
    Raises: CorruptLog when no flow begins with it.
    """
    if isinstance(body, kinds.FlowStarted):
        state = _started(entry, body)
        return state if is_own(entry) else withheld(state)
    if isinstance(body, kinds.FlowImported):
        return withheld(_imported(entry, body))
    raise CorruptLog(entry.stream, entry.seq, "a flow's log begins with its flow_started")


def _started(entry: Entry, body: kinds.FlowStarted) -> FlowState:
    run = FlowRun(
        flow_id=entry.stream,
        state_version=kinds.STATE_VERSION,
        project_namespace=body.project,
        workspace_root=body.workspace_root,
        record_folder_path=body.record_folder,
        status="running",
        running_nodes=(),
        awaiting_human_nodes={},
        pending_human_inputs={},
        visited_node_ids=(),
        completed_handoffs=(),
        receiving_handoff={},
        history_handoff={},
        awaiting_handoff=(),
        consent_state=ConsentState(mode=body.consent),
        feedback_context=FeedbackContext(
            body.feedback,
            body.initialization_mode,
            body.update_from_version,
            body.update_to_version,
        ),
        record_name=body.graph.name,
        record_summary=body.graph.summary,
    )
    return FlowState(
        run,
        body.graph,
        start=body.start,
        head=entry.seq,
        configuring=body.configuring,
        skills_configuring=body.skills_configuring,
    )


def _imported(entry: Entry, body: kinds.FlowImported) -> FlowState:
    run = msgspec.convert(body.run, FlowRun)
    run = replace(run, record_name=body.graph.name, record_summary=body.graph.summary)
    phase = run.improvement_phase
    waiting = (*run.awaiting_human_nodes, *(phase.awaiting_human_roles if phase else ()), ITSELF)
    return FlowState(
        run,
        body.graph,
        start=(),
        head=entry.seq,
        sessions=body.sessions,
        improvement=body.improvement,
        asked=dict.fromkeys(waiting, Asked(entry.seq, entry.at)),
    )
