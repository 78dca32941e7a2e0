"""A run that waits for people, and how to tell whether any process runs a flow."""

from __future__ import annotations

import asyncio
from pathlib import Path

from perdure.client.flows.flow import Flow
from perdure.session.flows.graph import FlowNode, Graph
from tests.fakes.chats import until
from tests.fakes.flow_stage import FlowStage, ends, writes

INTAKE = "Node `owner-intake`"
ALONE = Graph("alone", (FlowNode("owner-intake", "owner"),), ())


async def begun(stage: FlowStage, consent: str) -> Flow:
    flows = stage.flows("owner")
    return await flows.start(
        ALONE,
        workspace=stage.workspace,
        record_folder="record",
        id="f",
        consent="no-access" if consent == "no-access" else "full-access",
    )


async def waits_as(flow: Flow, topic: str) -> None:
    async def is_there() -> bool:
        return topic in [each.topic for each in await flow.waiting()]

    await until(is_there)


async def test_run_until_completed_continues_after_answers_of_other_processes(
    tmp_path: Path,
) -> None:
    stage = FlowStage(
        tmp_path,
        writes(INTAKE, "record/a.md"),
        ends(INTAKE, "prompt-human"),
        ends("Go on.", "forward-pass-closed"),
    )
    flow = await begun(stage, "no-access")
    running = asyncio.ensure_future(flow.run(until_completed=True))
    elsewhere = await stage.flows(owner="elsewhere").open("f")
    await waits_as(elsewhere, "consent")
    assert len(await elsewhere.workers()) == 1
    await elsewhere.consent("partial-access")
    await waits_as(elsewhere, "prompt-human")
    assert await elsewhere.workers() == ()
    await elsewhere.reply("Go on.")
    await waits_as(elsewhere, "improvement-choice")
    await elsewhere.choose_improvement("none")
    run = await asyncio.wait_for(running, 60)
    assert run.status == "completed"
    assert (await flow.run(until_completed=True)).status == "completed"


async def test_flow_with_a_suspended_turn_has_no_worker(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, writes(INTAKE, "record/a.md"))
    flow = await begun(stage, "no-access")
    running = asyncio.ensure_future(flow.run())
    await waits_as(flow, "consent")
    running.cancel()
    await asyncio.wait((running,))
    assert (await flow.state()).run.running_nodes == ("owner-intake",)
    assert await flow.workers() == ()
