"""Leaving a `Runtime` waits for turns that run, and never for people."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import perdure
from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.client.clock import SystemClock
from perdure.client.conversation.workspace import Workspace
from perdure.errors import TurnSuspended
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from perdure.session.ids import StreamId
from tests.fakes.chats import until
from tests.fakes.players import Hold, Theatre, asks, words

WRITE = asks("write_file", json='{"path": "a.txt", "content": "x"}')
INVOKE = asks("invoke_agent", json=json.dumps({"agent": "scout", "input": "write it"}))
LEFT_WITHIN_S = 60.0


async def start(theatre: Theatre, runtime: Runtime, folder: Path, id: str = "s") -> None:
    place = Workspace(working_dir=str(folder))
    (await runtime.start("lead", id=id, workspace=place)).send("go")


def agents(**lead: object) -> list[Agent]:
    tools = ("invoke_agent", "write_file")
    return [
        Agent("lead", model="p:lead", tools=tools, **lead),  # type: ignore[arg-type]  # settings of one agent
        Agent("scout", model="p:scout", tools=tools),
    ]


async def is_asked(theatre: Theatre) -> bool:
    return bool(await theatre.store.questions())


Leave = Callable[[Runtime], Awaitable[None]]


async def leave(runtime: Runtime) -> None:
    await runtime.__aexit__(None, None, None)


async def close(runtime: Runtime) -> None:
    await runtime.close()


async def suspend(runtime: Runtime) -> None:
    await runtime.suspend()


@pytest.mark.parametrize("leaving", [leave, close, suspend])
@pytest.mark.parametrize(
    ("acts", "settings"),
    [
        ({"lead": [WRITE]}, {}),
        ({"lead": [INVOKE], "scout": [WRITE]}, {}),
        ({"lead": [INVOKE], "scout": [INVOKE, WRITE]}, {}),
        ({}, {"max_cost_microcents": 1}),
    ],
    ids=["approval", "invoked", "invoked-deeper", "budget"],
)
async def test_turn_that_waits_for_a_person_is_suspended(
    acts: dict[str, list[object]], settings: dict[str, object], leaving: Leave, tmp_path: Path
) -> None:
    theatre = Theatre(**acts)  # type: ignore[arg-type]  # the acts of each model
    runtime = theatre.runtime(*agents(**settings))
    await start(theatre, runtime, tmp_path)
    await until(lambda: is_asked(theatre))
    asked = await theatre.store.questions()
    await asyncio.wait_for(leaving(runtime), LEFT_WITHIN_S)
    assert await theatre.store.questions() == asked
    assert (await theatre.memory.state(StreamId("s"))).open_turn is not None
    async with theatre.runtime(*agents(**settings)) as again:
        chat = await again.resume("s")
        answer = "deny" if "deny" in asked[0].question.choices else "continue"
        await theatre.store.answer(asked[0].id, answer, by="me")
        assert chat.turn is not None
        assert (await chat.turn).text == "done"
    assert await theatre.store.questions() == []


async def test_turn_that_asks_a_question_during_runtime_close_is_suspended(tmp_path: Path) -> None:
    hold = Hold()
    theatre = Theatre(lead=[(hold, *WRITE)])
    runtime = theatre.runtime(*agents())
    await start(theatre, runtime, tmp_path)
    await hold.entered.wait()
    leaving = asyncio.ensure_future(runtime.close())
    await asyncio.sleep(0)
    hold.leave.set()
    await asyncio.wait_for(leaving, LEFT_WITHIN_S)
    assert len(await theatre.store.questions()) == 1


async def test_running_turns_finish_while_other_turns_wait_for_people(tmp_path: Path) -> None:
    hold = Hold()
    theatre = Theatre(lead=[*[WRITE] * 5, (hold, *words("slow"))])
    runtime = theatre.runtime(*agents())
    for number in range(5):
        await start(theatre, runtime, tmp_path, f"s{number}")

    async def are_asked() -> bool:
        return len(await theatre.store.questions()) == 5

    await until(are_asked)
    await start(theatre, runtime, tmp_path, "slow")
    await hold.entered.wait()
    leaving = asyncio.ensure_future(runtime.close())
    await asyncio.sleep(0.01)
    assert not leaving.done()
    hold.leave.set()
    await asyncio.wait_for(leaving, LEFT_WITHIN_S)
    assert len(await theatre.store.questions()) == 5
    assert (await theatre.memory.state(StreamId("slow"))).open_turn is None


async def test_awaiting_a_turn_raises_an_error_when_the_turn_is_suspended(
    tmp_path: Path,
) -> None:
    theatre = Theatre(lead=[WRITE])
    runtime = theatre.runtime(*agents())
    chat = await runtime.start("lead", workspace=Workspace(working_dir=str(tmp_path)))
    turn = chat.send("go")

    async def wait() -> None:
        await turn

    async def watch() -> None:
        async for _ in turn:
            pass

    async def is_waiting() -> bool:
        return turn.is_waiting

    waiting = [asyncio.ensure_future(each()) for each in (wait, watch)]
    await until(is_waiting)
    assert await is_asked(theatre)
    await runtime.close()
    assert not turn.is_waiting
    for each in waiting:
        with pytest.raises(TurnSuspended):
            await asyncio.wait_for(each, LEFT_WITHIN_S)


@pytest.mark.parametrize("scheme", ["memory:", "sqlite:///{folder}/s.db", "jsonl:///{folder}/s"])
def test_blocking_program_can_end_while_its_turn_waits_for_an_answer(
    scheme: str, tmp_path: Path
) -> None:
    asking = CallTools((ScriptedCall("write_file", '{"path": "a.txt", "content": "x"}'),))
    rules = (
        Reply(when=When(after="user"), steps=(asking,)),
        Reply(when=When(after="tool"), steps=(Say("done"),)),
    )
    models = ScriptedModel(Scenario(name="test", rules=rules), clock=SystemClock())
    agent = Agent("helper", model="scripted:test", tools=("write_file",))
    place = Workspace(working_dir=str(tmp_path))
    outcomes: list[type] = []

    def wait(turn: perdure.blocking.Turn) -> None:
        try:
            turn.result()
        except TurnSuspended as error:
            outcomes.append(type(error))

    with perdure.blocking.open(scheme.format(folder=tmp_path)) as store:
        with perdure.blocking.Runtime(store, [agent], models=models) as runtime:
            turn = runtime.start(agent, id="s", workspace=place).send("go")
            waiting = threading.Thread(target=wait, args=(turn,))
            waiting.start()
            while not store.questions():
                pass
        waiting.join(LEFT_WITHIN_S)
        assert outcomes == [TurnSuspended]
        assert len(store.questions()) == 1
