"""Flows of a store as API values, with what they wait for and the state of their runs."""

from __future__ import annotations

from perdure.apps.flow.views import graph_faults
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.flows.values import FlowSummary, FlowView
from perdure.apps.server.flows.views import flow_view, summary_of
from perdure.client.flows.flow import Flow
from perdure.client.store import Store
from perdure.engine.flows.continuation import can_continue


async def summaries(runs: FlowRuns, store: Store) -> list[FlowSummary]:
    """Return all flows for a list, newest first."""
    found: list[FlowSummary] = []
    for state in await runs.flows.list():
        flow = runs.flows.look(state.run.flow_id)
        is_open = state.run.status != "completed"
        found.append(
            summary_of(
                state,
                await flow.waiting() if is_open else (),
                is_running=is_open and await runs.works(flow),
                started_at=(await store.backend.state(flow.id)).info.created_at,
            )
        )
    return found


async def shown(flow: Flow, runs: FlowRuns) -> FlowView:
    """Return all data of a flow except its feeds."""
    state = await flow.state()
    is_running = await runs.works(flow)
    return flow_view(
        state,
        await flow.waiting(),
        is_running=is_running,
        can_resume=not is_running and state.run.status != "completed" and can_continue(state),
        faults=await graph_faults(state),
        error=runs.error(flow.id),
    )
