"""Flows as values: a list, and one complete flow."""

from __future__ import annotations

from pathlib import Path

from perdure.apps.server.flows.states import shown, summaries
from tests.fakes.flow_stage import FlowStage
from tests.unit.apps.server.flows.test_feeds import ALONE
from tests.unit.apps.server.flows.test_runs import runs_of


async def test_new_flow_is_shown_as_resumable(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    runs = runs_of(stage)
    flow = await runs.flows.start(ALONE, workspace=tmp_path)
    (summary,) = await summaries(runs, stage.store)
    assert (summary.id, summary.is_running, summary.waits) == (flow.id, False, 0)
    view = await shown(flow, runs)
    assert (view.id, view.is_running, view.can_resume, view.error) == (flow.id, False, True, None)
