"""A role's configuration, chosen by a model or, if that fails, by a person."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.conversation.workspace import Workspace
from perdure.client.flows.flow import Flow
from perdure.client.flows.flows import Flows
from perdure.client.flows.selectors import About, Selectors
from perdure.engine.flows.journal import Journal
from perdure.engine.flows.selection import Undecided
from perdure.errors import Erased, FlowRefusal, SessionNotFound
from perdure.interop.a_society.exports import export_flow
from perdure.models.scenario import Hang, Reply, When
from perdure.session.codec import body_of
from perdure.session.flows.kinds import (
    Configuring,
    Dimension,
    NodeParked,
    Offers,
    RoleConfigured,
    SelectorOpened,
)
from perdure.session.flows.run import FlowRun
from perdure.session.ids import StreamId
from perdure.stores.protocol import StreamState
from tests.fakes.chats import until
from tests.fakes.flow_stage import MODEL, FlowStage, says
from tests.integration.flows.test_equipping import LINE, RULES, project, prompt_of

MODELS = ("scripted:flow", "scripted:other")
OWNER = says("Role instance `owner`", "model=scripted:flow skills=prose")
DEVELOPER = says("Role instance `developer`", "model=scripted:flow skills=none")


def flows_of(stage: FlowStage) -> Flows:
    """Return the flows as seen by another process."""
    return stage.flows("owner", "developer", offered=MODELS)


async def begun(
    stage: FlowStage, configuring: Configuring | Mapping[Dimension, Configuring] = "auto"
) -> Flow:
    return await flows_of(stage).start(
        LINE,
        workspace=stage.workspace,
        record_folder="record",
        consent="full-access",
        id="f",
        configuring=configuring,
    )


async def choices(stage: FlowStage) -> list[object]:
    """Return the entries about choices of configurations in the flow's log."""
    found = [body_of(entry) for entry in await stage.memory.entries(StreamId("f"))]
    return [b for b in found if isinstance(b, SelectorOpened | RoleConfigured | NodeParked)]


async def said_to(stage: FlowStage, selector: str) -> list[str]:
    """Return the messages in the session of a selector."""
    session = await stage.store.open(selector)
    return [message.text for message in await session.messages()]


async def test_selection_of_model_is_recorded_in_log(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), OWNER, DEVELOPER, *RULES)
    assert (await (await begun(stage)).run()).status == "awaiting_improvement_choice"
    opened, chosen, _, developers = await choices(stage)
    assert isinstance(opened, SelectorOpened)
    assert (opened.attempt, opened.offers.models) == (1, MODELS)
    assert chosen == RoleConfigured(
        "owner", MODELS[0], ("prose",), is_automatic=True, selector=opened.session
    )
    assert isinstance(developers, RoleConfigured)
    assert developers.skills == ()
    assert "Be plain." in await prompt_of(stage, "owner")
    assert "# Skill" not in await prompt_of(stage, "developer")
    told, answer = await said_to(stage, opened.session)
    assert "node `owner-intake`" in told
    assert "- tests: How we do tests." in told
    assert answer == "model=scripted:flow skills=prose"
    listed = await stage.memory.sessions()
    assert opened.session not in [info.id for info in listed]


async def test_person_is_asked_after_three_failed_selections(tmp_path: Path) -> None:
    wrong = (
        says("there is no skill 'magic'", "I take them all."),
        says("'I' says nothing", "model=scripted:flow"),
        says("Role instance `owner`", "model=scripted:flow skills=magic"),
    )
    stage = FlowStage(project(tmp_path), *wrong, DEVELOPER, *RULES)
    flow = await begun(stage)
    assert (await flow.run()).awaiting_human_nodes["owner-intake"].reason == "role-configuration"
    found = await choices(stage)
    assert [each.attempt for each in found if isinstance(each, SelectorOpened)] == [1, 2, 3]
    (asked,) = await stage.store.questions()
    assert "in 3 attempts (at last: the answer lacks skills=NAME,NAME" in asked.question.text
    assert "choose from models: scripted:flow, scripted:other" in asked.question.text
    await stage.store.answer(asked.id, "model=scripted:flow skills=tests", by="ana")
    run = await (await flows_of(stage).open("f")).run()
    assert run.status == "awaiting_improvement_choice"
    assert "Run them all." in await prompt_of(stage, "owner")
    assert len([each for each in await choices(stage) if isinstance(each, SelectorOpened)]) == 4


async def test_selector_chooses_the_model_while_a_person_chooses_the_skills(
    tmp_path: Path,
) -> None:
    model = says("Role instance", "model=scripted:flow")
    stage = FlowStage(project(tmp_path), model, *RULES)
    flow = await begun(stage, {"model": "auto", "skills": "ask"})
    await flow.run()
    (asked,) = await stage.store.questions()
    assert asked.question.choices == ("default", "skills=prose", "skills=tests")
    await stage.store.answer(asked.id, "skills=tests", by="ana")
    await flow.run()
    assert (await flow.state()).roles["owner"].model == "scripted:flow"
    assert "Run them all." in await prompt_of(stage, "owner")
    opened = [each for each in await choices(stage) if isinstance(each, SelectorOpened)]
    assert [each.offers.skills for each in opened] == [{}, {}]


async def test_failed_selector_turn_counts_as_attempt(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), *RULES, Reply(when=When(user_contains="x"), steps=()))
    await (await begun(stage)).run()
    (asked,) = await stage.store.questions()
    assert "in 3 attempts" in asked.question.text


HANGING = Reply(when=When(user_contains="Role instance `owner`"), steps=(Hang(),))


async def test_selector_is_stopped_and_a_person_chooses_instead(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), HANGING, DEVELOPER, *RULES)
    flow = await begun(stage)
    running = asyncio.ensure_future(flow.run())
    await until(lambda: is_choosing(stage))
    with pytest.raises(FlowRefusal, match=r"'developer' is not at work \(at work: owner\)"):
        await flow.stop("developer")
    await flow.stop("owner-intake")
    waiting = (await running).awaiting_human_nodes["owner-intake"]
    assert waiting.reason == "role-configuration"
    assert (waiting.detail or "").startswith("a person stopped the model that was to choose; ")
    assert (await flow.state()).stopping == ()
    await flow.configure("owner", model=MODELS[0])
    assert (await flow.run()).status == "awaiting_improvement_choice"
    opened = [each for each in await choices(stage) if isinstance(each, SelectorOpened)]
    assert [each.role for each in opened] == ["owner", "developer"]


async def test_selector_of_dead_process_is_stopped_by_successor(
    tmp_path: Path,
) -> None:
    stage = FlowStage(project(tmp_path), HANGING, DEVELOPER, *RULES)
    flow = await begun(stage)
    running = asyncio.ensure_future(flow.run())
    await until(lambda: is_choosing(stage))
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await flow.stop("owner")
    stage.clock.advance(600)
    run = await (await flows_of(stage).open("f")).run()
    assert run.awaiting_human_nodes["owner-intake"].reason == "role-configuration"
    assert (await stage.memory.state(StreamId("f__owner__selector-1"))).open_turn is None


async def is_choosing(stage: FlowStage) -> bool:
    """Return whether the owner's selector is running."""
    try:
        state = await stage.memory.state(StreamId("f__owner__selector-1"))
    except SessionNotFound:
        return False
    return state.open_turn is not None


async def test_selector_that_another_process_runs_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FlowStage(project(tmp_path), OWNER, DEVELOPER, *RULES)
    flow = await begun(stage)
    there = await flows_of(stage).open("f")
    read = stage.memory.state
    runs: list[FlowRun] = []

    async def late(stream: StreamId) -> StreamState:
        found = await read(stream)
        if stream == "f__owner__selector-1" and not runs:
            monkeypatch.undo()
            runs.append(await there.run())
        return found

    monkeypatch.setattr(stage.memory, "state", late)
    assert (await flow.run()).status == "awaiting_improvement_choice"
    assert [run.status for run in runs] == ["awaiting_improvement_choice"]
    assert len(await said_to(stage, "f__owner__selector-1")) == 2


async def test_selector_turn_ended_by_another_process_counts_as_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = FlowStage(project(tmp_path), OWNER, DEVELOPER, *RULES)
    flow = await begun(stage)
    there = await flows_of(stage).open("f")
    read = stage.memory.state
    rivals: list[FlowRun] = []
    open_looks = [1, 1]  # where another process has begun its turn: to begin one, and after that

    async def late(stream: StreamId) -> StreamState:
        found = await read(stream)
        if stream != "f__owner__selector-1":
            return found
        if not rivals:
            monkeypatch.setattr(stage.memory, "state", read)
            rivals.append(await there.run())
            monkeypatch.setattr(stage.memory, "state", late)
        elif open_looks:
            return msgspec.structs.replace(found, open_turn=open_looks.pop())
        return found

    monkeypatch.setattr(stage.memory, "state", late)
    assert (await flow.run()).status == "awaiting_improvement_choice"
    assert not open_looks
    assert len(await said_to(stage, "f__owner__selector-1")) == 2


async def test_selection_whose_session_was_erased_counts_as_an_attempt(
    tmp_path: Path,
) -> None:
    stage = FlowStage(project(tmp_path), OWNER, DEVELOPER, *RULES)
    flow = await begun(stage)
    agent = Agent("owner", model=MODEL)
    runtime = Runtime(stage.store, [agent], models=stage.models)
    journal = Journal(stage.memory, flow.id, stage.clock)
    place = Workspace(working_dir=str(tmp_path))
    about = About(agent, place, LINE.nodes[0], None)
    open = Undecided(Offers(MODELS, {"prose": "How we do prose."}))
    await Selectors(runtime.host, journal).step(await journal.state(), "owner", open, about)
    await stage.store.erase("f__owner__selector-1", forks="keep", by="ana")
    assert (await flow.run()).status == "awaiting_improvement_choice"
    first, second, *_ = await choices(stage)
    assert isinstance(first, SelectorOpened)
    assert isinstance(second, SelectorOpened)
    assert (second.attempt, second.refused) == (2, "its session was erased")


async def test_selector_sessions_are_exported_and_deleted_with_flow(tmp_path: Path) -> None:
    stage = FlowStage(project(tmp_path), OWNER, DEVELOPER, *RULES)
    await (await begun(stage)).run()
    files = (await export_flow(stage.memory, StreamId("f"))).files
    assert b"skills=prose" in files["selectors/owner-1.json"]
    await stage.store.erase("f", forks="keep", by="ana")
    with pytest.raises(Erased):
        await stage.store.open("f__owner__selector-1")
