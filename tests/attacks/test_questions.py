"""A question ends with its turn, and cannot be answered afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.conversation.workspace import Workspace
from perdure.errors import AlreadyAnswered, QuestionClosed
from perdure.models.scenario import Hang
from perdure.session.codec import new_side
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.notes import Question, QuestionWithdrawn
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import MODEL, Stage, calls, says, until
from tests.fakes.flow_stage import FlowStage, writes
from tests.fakes.players import Theatre, asks
from tests.fakes.raw_database import raw_database

WRITE = '{"path": "a.txt", "content": "x"}'
"""The arguments of a call that needs approval."""

Ending = Callable[[Chat], Awaitable[object]]


async def asked(store: perdure.Store) -> str:
    """Return the id of the only open question, once there is one."""

    async def is_asked() -> bool:
        return bool(await store.questions())

    await until(is_asked)
    (question,) = await store.questions()
    return question.id


# ---------------------------------------------------------------- turns that wait for a person


Case = tuple[perdure.Store, Chat]


async def approval(folder: Path) -> Case:
    stage = Stage(says(calls("write_file", json=WRITE)), says("done"))
    agent = Agent("helper", model=MODEL, tools=("write_file",))
    place = Workspace(working_dir=str(folder))
    chat = await stage.runtime(agent).start(agent, id="s", workspace=place)
    chat.send("go")
    return stage.store, chat


async def budget(folder: Path) -> Case:
    stage = Theatre()
    chat = await stage.chat(max_cost_microcents=1)
    chat.send("go")
    return stage.store, chat


async def unknown_outcome(folder: Path) -> Case:
    async def pay() -> str:
        await asyncio.Event().wait()
        return ""

    tool = perdure.tool(effect="external", on_unknown="ask")(pay)
    stage = Stage(says(calls("pay")), says("done"))
    agent = Agent("helper", model=MODEL, tools=(tool,))
    chat = await stage.runtime(agent).start(agent, id="s")
    chat.send("go")

    async def is_running() -> bool:
        return "tool_started" in await stage.kinds()

    await until(is_running)
    await chat.suspend()
    return stage.store, await stage.runtime(agent).resume("s", agent)


async def interrupted(folder: Path) -> Case:
    stage = Stage(says("Half an", Hang()), says("done"))
    chat = await stage.chat(on_interrupt="ask")
    chat.send("go")
    await stage.kept()
    await chat.suspend()
    return stage.store, await stage.runtime(chat.agent).resume("s", chat.agent)


async def invoked(folder: Path) -> Case:
    invoke = asks("invoke_agent", json=json.dumps({"agent": "scout", "input": "write it"}))
    theatre = Theatre(lead=[invoke], scout=[asks("write_file", json=WRITE)])
    tools = ("invoke_agent", "write_file")
    agents = [Agent(name, model=f"p:{name}", tools=tools) for name in ("lead", "scout")]
    place = Workspace(working_dir=str(folder))
    chat = await theatre.runtime(*agents).start("lead", id="s", workspace=place)
    chat.send("go")
    return theatre.store, chat


# ---------------------------------------------------------------- ways to end them


async def abort(chat: Chat) -> None:
    await chat.abort()


async def cancel(chat: Chat) -> None:
    await chat.cancel()


async def end(chat: Chat) -> None:
    await chat.end()


async def end_as_suspended(chat: Chat) -> None:
    await chat.suspend()
    await chat.end()


async def abandon(chat: Chat) -> None:
    await chat.suspend()
    await chat.session.abandon_turn()


@pytest.mark.parametrize("ending", [abort, cancel, end, end_as_suspended, abandon])
@pytest.mark.parametrize("waiting", [approval, budget, unknown_outcome, interrupted, invoked])
async def test_ended_turn_withdraws_its_question(
    waiting: Callable[[Path], Awaitable[Case]], ending: Ending, tmp_path: Path
) -> None:
    store, chat = await waiting(tmp_path)
    question = await asked(store)
    (open_one,) = await store.questions()
    await ending(chat)
    assert await store.questions() == []
    assert await chat.questions() == []
    session = await store.open(question.rpartition("/")[0])
    before = [entry.kind async for entry in session.entries()]
    assert before.count(QuestionWithdrawn.kind) == 1
    for choice in open_one.question.choices:
        with pytest.raises(QuestionClosed):
            await store.answer(question, choice, by="late")
        with pytest.raises(QuestionClosed):
            await session.answer(question, choice, by="late")
    assert [entry.kind async for entry in session.entries()] == before
    assert not (tmp_path / "a.txt").exists()


async def test_stopping_a_flow_node_withdraws_its_question(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, writes("Node `owner-intake`", "a.txt"))
    flow = await stage.flows("owner").start(
        Graph("f", (FlowNode("owner-intake", "owner"),), ()),
        workspace=tmp_path,
        record_folder="record",
        consent="no-access",
        id="trip",
    )
    running = asyncio.ensure_future(flow.run())
    question = await asked(stage.store)
    await flow.stop("owner-intake")
    await running
    assert [each.question.topic for each in await stage.store.questions()] == ["autonomous-abort"]
    for choice in ("allow", "allow-flow", "deny"):
        with pytest.raises(QuestionClosed):
            await stage.store.answer(question, choice, by="late")
    assert not (tmp_path / "a.txt").exists()


async def test_closed_question_that_a_file_lists_as_open_is_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    asking = new_side(Question("approval", "May I?", ("allow", "deny")))
    async with perdure.open(f"sqlite:///{path}") as store:
        session = await store.create(id="s")
        write = Write(stream=session.id, entries=(asking,))
        await store.backend.commit(Commit(writes=(write,), at=1))
        fork = await session.fork(id="f")
        asked = Write(stream=fork.id, entries=(asking,))
        await store.backend.commit(Commit(writes=(asked,), at=2))
        for question in await store.questions():
            await store.answer(question.id, "deny", by="me")
    with raw_database(path) as db:
        db.execute(
            "INSERT OR IGNORE INTO open_question SELECT s.namespace, s.no, seq FROM stream s, entry"
        )

    for is_trusted in (True, False):
        async with perdure.open(f"sqlite:///{path}", is_trusted=is_trusted) as store:
            assert await store.questions() == []
            for id_ in ("s", "f"):
                assert await (await store.open(id_)).questions() == []
                with pytest.raises(AlreadyAnswered):
                    await store.answer(f"{id_}/0", "allow", by="me")
            problems = [each.problem for each in (await store.verify()).problems]
            assert any("does not belong in the list" in problem for problem in problems)


async def test_imported_session_lists_no_question_as_open(tmp_path: Path) -> None:
    asking = new_side(Question("approval", "May I?", ("allow", "deny")))
    async with perdure.open(f"sqlite:///{tmp_path / 'store.db'}") as store:
        session = await store.create(id="s")
        await session.append(perdure.user("hi"))
        await store.backend.commit(
            Commit(writes=(Write(stream=session.id, entries=(asking,)),), at=1)
        )
        assert [each.id for each in await session.questions()] == ["s/1"]
        await session.export("perdure", tmp_path / "s.perdure")
    for is_trusted in (True, False):
        async with perdure.open(
            f"sqlite:///{tmp_path / 'other.db'}", is_trusted=is_trusted
        ) as other:
            await other.import_files([tmp_path / "s.perdure"])
            assert await (await other.open("s")).questions() == []
