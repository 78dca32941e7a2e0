"""Runs of flows: one run per flow, and only in the projects of the server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import perdure
from perdure.apps.server.flows.runs import FlowRuns
from perdure.apps.server.problems import Problem
from perdure.models.scenario import Hang, Reply
from tests.fakes.flow_stage import FlowStage, ends
from tests.unit.apps.server.flows.test_feeds import ALONE, START


def runs_of(stage: FlowStage, *projects: Path) -> FlowRuns:
    desk = perdure.Agent("desk", model="scripted:flow")
    return FlowRuns(perdure.Runtime(stage.store, [desk], models=stage.models), projects)


async def test_role_without_agent_uses_first_agent(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, ends(START, "forward-pass-closed"))
    runs = runs_of(stage)
    flow = await runs.flows.start(ALONE, workspace=tmp_path)
    await runs.ensure(flow.id)
    assert await runs.works(flow)
    async with asyncio.timeout(60):
        while (await flow.state()).run.status == "running":  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    await runs.close()
    assert not await runs.works(flow)
    assert (await flow.state()).run.status == "awaiting_improvement_choice"


async def test_flow_resumed_several_times_runs_only_once(tmp_path: Path) -> None:
    models = FlowStage(tmp_path, Reply(steps=(Hang(),))).models  # the run lasts
    desk = perdure.Agent("desk", model="scripted:flow")
    async with perdure.open(f"sqlite:///{tmp_path}/store.db") as store:
        runs = FlowRuns(perdure.Runtime(store, [desk], models=models))
        flow = await runs.flows.start(ALONE, workspace=tmp_path)
        before = asyncio.all_tasks()
        await asyncio.gather(*(runs.ensure(flow.id) for _ in range(4)))
        begun = [each for each in asyncio.all_tasks() - before if "FlowRuns._run" in repr(each)]
        await runs.close()
    assert len(begun) == 1


async def test_flow_without_its_folder_reports_an_error(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    runs = runs_of(stage)
    folder = tmp_path / "project"
    folder.mkdir()
    flow = await runs.flows.start(ALONE, workspace=folder)
    folder.rename(tmp_path / "moved")
    await runs.go_on(flow.id)
    assert "project" in str(runs.error(flow.id))
    assert not await runs.works(flow)


def test_path_outside_of_projects_is_rejected(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path)
    inside = tmp_path / "in"
    inside.mkdir()
    (inside / "link").symlink_to(tmp_path)
    runs = runs_of(stage, inside)
    assert runs.project(inside / "a" / "b") == inside / "a" / "b"
    for place in (tmp_path, inside / "..", inside / "link", "/", f"{inside}-other"):
        with pytest.raises(Problem):
            runs.project(place)
    with pytest.raises(Problem):
        runs_of(stage).project(inside)
