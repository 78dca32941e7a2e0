"""Flows that move to another machine as folders, with real sessions and turns before and after.

Each flow is exported, imported into another store, and runs in another folder with other agents.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

import perdure
from perdure.apps.flow.imports import import_folder
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import SystemClock
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.store import Store
from perdure.engine.flows.documents.document_flow import workflow_text_of
from perdure.interop.a_society.exports import export_flow
from perdure.interop.a_society.folder import Readable
from perdure.models.scenario import Reply, Scenario
from perdure.models.scripted import ScriptedModel
from perdure.session.flows.graph import FlowEdge, FlowNode, Graph
from perdure.session.ids import StreamId
from tests.fakes.a_society import TRIP, TRIP_RECORD, trip_workspace
from tests.fakes.flow_stage import MODEL, ends, hands, says, writes
from tests.unit.interop.a_society.test_imports import written

F = StreamId("20260527T143000123Z-a1b2c3")
GRAPH = Graph(
    "Release",
    (
        FlowNode("owner-intake", "owner", work=("Plan it.",)),
        FlowNode("build", "developer", work=("Build it.",)),
        FlowNode("write", "writer_2", work=("Describe it.",)),
        FlowNode("check", "reviewer", work=("Check it.",), has_human=True),
        FlowNode("end", "owner", work=("Close it.",), awaits_all_inputs=True),
    ),
    tuple(
        FlowEdge(*edge)
        for edge in (
            ("owner-intake", "build"),
            ("owner-intake", "write"),
            ("build", "check"),
            ("check", "end"),
            ("write", "end"),
        )
    ),
)
ROLES = ("owner", "developer", "writer", "reviewer")
INSTANCES = ("owner", "developer", "writer_2", "reviewer")

replace = msgspec.structs.replace


def rules(record: str) -> tuple[Reply, ...]:
    """Return the answers of the roles; they write into the folder `record` of their workspace."""
    plans = hands("Node `owner-intake`", record, "plan.md", "build", "write")
    looks = [rule for role in INSTANCES for rule in looking_back(role, record)]
    return (
        *plans,
        says("Node `build`", "Which way?\n```handoff\ntype: prompt-human\n```"),
        *hands("the long way", record, "built.md", "check"),
        *hands("Node `write`", record, "text.md", "end"),
        *hands("Node `check`", record, "checked.md", "end"),
        ends("Node `end`", "forward-pass-closed"),
        *looks,
        *(again(rule, "owner") for rule in plans),
        *(again(rule, role) for role in INSTANCES[1:] for rule in looking_back(role, record)),
    )


def looking_back(role: str, record: str) -> tuple[Reply, Reply]:
    """Return the answers of `role` during the improvement phase of the flow."""
    path = f"findings/{role}-findings.md"
    return (
        writes(path, f"{record}/{path}", f"{role} found nothing."),
        ends(path, "meta-analysis-complete", findings_path=path),
    )


def again(rule: Reply, role: str) -> Reply:
    """Return `rule` changed so that it answers the request of `role` after an interrupted turn."""
    assert rule.when is not None
    when = replace(rule.when, user_contains="was interrupted", system_contains=f"`{role}`")
    return replace(rule, when=when)


@asynccontextmanager
async def machine(
    folder: Path, rules: tuple[Reply, ...], roles: Sequence[str] = ROLES
) -> AsyncGenerator[tuple[Store, Flows]]:
    """Open a store and agents in `folder`, whose model answers by `rules`."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    models = ScriptedModel(Scenario(name="flow", rules=rules), clock=SystemClock())
    agents = [Agent(role, model=MODEL, tools=["read_file", "write_file"]) for role in roles]
    async with (
        perdure.open(f"sqlite:///{folder}/store.db") as store,
        Runtime(store, agents, models=models) as runtime,
        Flows(runtime) as flows,
    ):
        yield store, flows


async def files_of(store: Store) -> dict[str, bytes]:
    """Return the folder that `perdure flow export` writes."""
    files = (await export_flow(store.backend, F)).files
    async with Flows(Runtime(store)) as flows:
        return {**files, "record/workflow.yaml": workflow_text_of(await flows.state(F)).encode()}


async def asked_and_died(store: Store, flow: Flow) -> None:
    """Run `flow` until a role asks for consent, then cancel the run in the middle of its turn."""
    running = asyncio.ensure_future(flow.run())
    async for _ in store.backend.changes():
        if [q for q in await store.questions() if q.question.topic == "approval"]:
            break
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def finish(flow: Flow) -> dict[str, Any]:
    """Make all decisions until `flow` is completed; return the reasons for waiting, in order."""
    waited: list[str] = []
    for _ in range(20):
        run = await flow.run()
        if run.status == "completed":
            return {"run": run, "waited": waited}
        waiting, *_ = await flow.waiting()
        assert waiting.topic != "autonomous-abort", waiting
        waited.append(f"{waiting.target}:{waiting.topic}")
        match waiting.topic:
            case "prompt-human":
                await flow.reply("Take the long way.")
            case "handoff-approval":
                await flow.approve()
            case "improvement-choice":
                await flow.choose_improvement("graph-based")
            case "feedback-consent":
                await flow.decide_feedback(is_granted=False)
            case topic:
                raise AssertionError(topic, waiting.text)
    raise AssertionError(waited)


MOMENTS = {
    "before it began": "",
    "in a tool call": "asks",
    "with a queued reply": "replied",
    "at an approval": "staged",
    "at its close": "closed",
    "in its looking back": "looks",
}


async def brought_to(moment: str, store: Store, flow: Flow) -> None:
    """Run a new flow up to `moment`."""
    if not moment:
        return
    if moment == "asks":
        await asked_and_died(store, flow)
        return
    await flow.consent("full-access")
    await flow.run()
    await flow.reply("Take the long way.")
    if moment == "replied":
        return
    await flow.run()
    if moment == "staged":
        return
    await flow.approve()
    await flow.run()
    if moment == "looks":
        await flow.choose_improvement("graph-based")
        await flow.consent("no-access")
        await asked_and_died(store, flow)


@pytest.mark.parametrize("moment", MOMENTS.values(), ids=MOMENTS.keys())
async def test_moved_flow_runs_to_its_end(moment: str, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    async with machine(here, rules("record")) as (store, flows):
        flow = await flows.start(GRAPH, workspace=here / "work", id=F, record_folder="record")
        await brought_to(moment, store, flow)
        files = await files_of(store)
        state = (await flow.state()).run
    folder = written(tmp_path / "moved", files)
    (here / "work").rename(here / "gone")
    async with machine(there, rules(f".perdure/records/{F}")) as (store, flows):
        outcome = await import_folder(store, folder)
        assert outcome.error is None
        assert await files_of(store) == files
        flow = await flows.open(F, workspace=there / "work")
        await flow.consent("full-access")
        done = await finish(flow)
        run = done["run"]
        assert set(run.completed_handoffs) == {edge.key for edge in GRAPH.edges}
        assert run.receiving_handoff == {}
        assert all(len(set(paths)) == 1 for paths in run.history_handoff.values())
        record = there / "work" / ".perdure" / "records" / F
        assert {path.name for path in record.iterdir()} >= {"plan.md", "built.md", "checked.md"}
        assert run.improvement_phase is not None
        assert len(run.improvement_phase.findings_produced) == 4
        said = [m.text for m in await (await store.open(f"{F}__developer")).messages()]
        assert "Take the long way." in said
        if state.pending_human_inputs:
            assert "build:prompt-human" not in done["waited"]


def trip_rules(record: str) -> tuple[Reply, ...]:
    """Return the answers of the trip's roles; they write into the folder `record`."""
    return (
        *hands("The night train.", record, "02-curated.md", "close"),
        ends("Node `close`", "forward-pass-closed"),
        *(rule for role in ("owner", "curator_2") for rule in looking_back(role, record)),
    )


@pytest.mark.parametrize("is_whole", [True, False], ids=["workspace", "state and record"])
async def test_flow_imported_from_another_program_runs_to_its_end(
    is_whole: bool, tmp_path: Path
) -> None:
    moved, there = tmp_path / "moved", tmp_path / "there"
    folder = trip_workspace(moved)
    if is_whole:
        workspace, record = moved, TRIP_RECORD
    else:
        (moved / TRIP_RECORD).rename(folder / "record")
        workspace, record = there / "work", f".perdure/records/{TRIP}"
    async with machine(there, trip_rules(record), ()) as (store, flows):
        readable = Readable(moved) if is_whole else None
        outcome = await import_folder(store, folder, readable)
        assert outcome.error is None
        recorded = json.loads((await export_flow(store.backend, StreamId(TRIP))).files["flow.json"])
        assert recorded["pendingHumanInputs"]["curate"]["text"] == "The night train."
        flow = await flows.open(TRIP, workspace=workspace)
        await flow.run()  # without an agent of its role
        waiting = (await flow.state()).run
        assert "no agent" in (waiting.awaiting_human_nodes["curate"].detail or "")
        assert waiting.pending_human_inputs["curate"].text == "The night train."
    async with machine(there, trip_rules(record), ("owner", "curator")) as (store, flows):
        flow = await flows.open(TRIP)
        await flow.consent("full-access")
        done = await finish(flow)
        assert done["waited"] == ["None:improvement-choice", "None:feedback-consent"]
        session = await store.open(f"{TRIP}__curator_2")
        said = [message.text for message in await session.messages()]
        assert said[:1] == ["Node curate started. Curate the plan."]
        assert said.count("The night train.") == 1
        role = json.loads((await export_flow(store.backend, flow.id)).files[CURATOR])
        context = role["currentNodeContext"]
        assert context["exchanges"][:1] == role["transcriptHistory"][:1]  # one node, all of it
    assert (workspace / record / "02-curated.md").read_text() == "what 02-curated.md says"
    assert (workspace / record / "record.yaml").is_file()


async def test_imported_artifact_is_not_handed_over_again(tmp_path: Path) -> None:
    folder, there = trip_workspace(tmp_path / "moved"), tmp_path / "there"
    (tmp_path / "moved" / TRIP_RECORD).rename(folder / "record")
    record = f".perdure/records/{TRIP}"
    again = (
        says(
            "The night train.", "```handoff\ntarget_node_id: close\nartifact_path: 01-plan.md\n```"
        ),
        ends("was handed over before", "prompt-human"),
    )
    async with machine(there, again, ("owner", "curator")) as (store, flows):
        await import_folder(store, folder)
        flow = await flows.open(TRIP, workspace=there / "work")
        await flow.run()
        said = await (await flow.session("curator_2")).messages()
        assert "'01-plan.md' was handed over before" in said[-2].text
        assert (there / "work" / record / "01-plan.md").read_text() == "By train.\n"


CURATOR = "roles/curator_2/transcript.json"
