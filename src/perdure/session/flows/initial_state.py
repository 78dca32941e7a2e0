"""The initial state of a flow that was started in this store, or imported with a state."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from perdure.errors import CorruptLog
from perdure.session.entries import Entry
from perdure.session.flows import kinds
from perdure.session.flows.consent import withheld
from perdure.session.flows.debts import with_debts
from perdure.session.flows.distinct import Distinct
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
    """Return the state of a flow after the first entry of its log.

    `body` is the decoded body of the entry. `is_own` returns True if this user's perdure wrote the
    entry or this user trusts it. An imported entry can never grant permissions.
    Raises: CorruptLog if a flow cannot start with this entry.
    """
    if isinstance(body, kinds.FlowStarted):
        state = _state_at_start(entry, body)
        return state if is_own(entry) else withheld(state)
    if isinstance(body, kinds.FlowImported):
        return withheld(_state_at_import(entry, body))
    raise CorruptLog(entry.stream, entry.seq, "a flow's log begins with its flow_started")


def _state_at_start(entry: Entry, body: kinds.FlowStarted) -> FlowState:
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
        visited_node_ids=Distinct(),
        completed_handoffs=Distinct(),
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


def _state_at_import(entry: Entry, body: kinds.FlowImported) -> FlowState:
    run = msgspec.convert(body.run, FlowRun)
    run = replace(run, record_name=body.graph.name, record_summary=body.graph.summary)
    start = tuple(node for node in run.running_nodes if not _has_begun(body, run, node))
    running = tuple(node for node in run.running_nodes if node not in start)
    run = replace(
        run,
        running_nodes=running,
        visited_node_ids=run.visited,
        completed_handoffs=run.completed,
    )
    phase = run.improvement_phase
    waiting = (*run.awaiting_human_nodes, *(phase.awaiting_human_roles if phase else ()), ITSELF)
    state = FlowState(
        run,
        body.graph,
        start=start,
        head=entry.seq,
        sessions=body.sessions,
        improvement=body.improvement,
        at_node=body.at_node,
        asked=dict.fromkeys(waiting, Asked(entry.seq, entry.at)),
        imported_record=body.record,
        former_record=_relative(run.record_folder_path, run.workspace_root),
    )
    return with_debts(replace(state, digests=_digests(state)))


def _has_begun(body: kinds.FlowImported, run: FlowRun, node: str) -> bool:
    """Return True if `node` has started.

    A-Society lists nodes as running even if they have not started.
    """
    known = body.graph.node(node)
    return node in run.visited or (known is not None and known.role in body.sessions)


def _digests(state: FlowState) -> dict[str, tuple[str, ...]]:
    """Return the hashes of each edge's artifacts.

    The result omits an edge if the imported record lacks one of its artifacts.
    """
    found: dict[str, tuple[str, ...]] = {}
    for key, paths in state.run.history_handoff.items():
        known = [state.imported_record.get(state.in_record(path)) for path in paths]
        digests = tuple(digest for digest in known if digest is not None)
        if len(digests) == len(paths):
            found[key] = digests
    return found


def _relative(path: str, root: str) -> str:
    """Return `path` relative to the folder `root`; "" if `path` is outside of `root`."""
    below = f"{root.rstrip('/')}/"
    return path.removeprefix(below).strip("/") if path.startswith(below) else ""
