"""Turns of an agent whose answers have a type."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.config import Limits
from perdure.errors import TurnFailed, WrongArgument
from perdure.models.protocol import ModelRequest
from perdure.session.codec import body_of
from perdure.session.ledger import OutputRefused, TurnFinished
from perdure.session.messages import Message
from perdure.tools.decorator import tool
from perdure.tools.output import output_of
from tests.fakes.chats import MODEL, Stage, calls, says


@dataclasses.dataclass
class Stay:
    city: str
    nights: int


GOOD = '{"city": "Rome", "nights": 2}'


async def bodies(stage: Stage, of: type) -> list[Any]:
    session = await stage.store.open("s")
    return [body async for e in session.entries() if isinstance(body := body_of(e), of)]


async def test_reply_contains_an_output_of_the_declared_type() -> None:
    chat = await Stage(says(GOOD)).chat(output=Stay)
    reply = await chat.send("Where to?")
    assert reply.output == Stay("Rome", 2)
    assert reply.text == GOOD


async def test_reply_of_an_agent_without_an_output_type_has_no_output() -> None:
    chat = await Stage(says(GOOD)).chat()
    assert (await chat.send("Where to?")).output is None


async def test_answer_with_invalid_output_is_recorded_and_corrected() -> None:
    stage = Stage(says("Rome!"), says('{"city": "Rome", "nights": "two"}'), says(GOOD))
    chat = await stage.chat(output=Stay)
    reply = await chat.send("Where to?")
    assert reply.output == Stay("Rome", 2)
    problems = [refused.problem for refused in await bodies(stage, OutputRefused)]
    assert problems == [
        "it is not JSON: JSON is malformed: invalid character (byte 0)",
        "nights: expected `int`, got `str`",
    ]
    said = [(m.role, m.author) for m in await bodies(stage, Message)]
    asked = ("user", "perdure")
    told = ("assistant", None)
    assert said == [("user", None), told, asked, told, asked, told]


async def test_request_after_invalid_output_contains_schema_and_problem() -> None:
    requests: list[ModelRequest] = []
    hooks = Hooks()
    hooks.on("before_model_call", lambda call: requests.append(call.request))
    chat = await Stage(says("Rome!"), says(GOOD)).chat(output=Stay, hooks=hooks, instructions="Hi.")
    await chat.send("Where to?")
    first, second = requests
    found = output_of(Stay)
    assert found is not None
    assert first.output_schema == second.output_schema == found.schema
    assert str(first.system).startswith("Hi.\n\n")
    assert '"nights"' in str(first.system)
    assert "it is not JSON" in second.messages[-1].text


async def test_repeated_invalid_answers_end_turn() -> None:
    stage = Stage(*[says("no")] * 9)
    chat = await stage.chat(output=Stay, limits=Limits(max_correctable_rounds=2))
    with pytest.raises(TurnFailed, match="3 answers do not fit") as failed:
        await chat.send("Where to?")
    assert failed.value.failure == "invalid_output"
    assert len(await bodies(stage, OutputRefused)) == 3
    [finished] = await bodies(stage, TurnFinished)
    assert finished.failure == "invalid_output"


async def test_output_is_checked_only_after_tools_have_run() -> None:
    async def look() -> str:
        return "nothing"

    stage = Stage(says("I look.", calls("look")), says(GOOD))
    chat = await stage.chat([look], output=Stay)
    assert (await chat.send("Where to?")).output == Stay("Rome", 2)
    assert not await bodies(stage, OutputRefused)


async def test_invalid_output_is_corrected_after_another_process_resumes_the_turn() -> None:
    entered = asyncio.Event()
    is_first = True

    @tool(effect="read")
    async def look() -> str:
        entered.set()
        if is_first:
            await asyncio.Event().wait()
        return "nothing"

    stage = Stage(says("Rome!"), says(calls("look")), says("Rome!"), says(GOOD))
    made = Agent("helper", model=MODEL, tools=(look,), output=Stay)
    chat = await stage.runtime(made).start(made, id="s")
    turn = chat.send("Where to?")
    await entered.wait()
    await turn.stop()
    is_first = False
    resumed = await stage.runtime(made, owner="there").resume("s")
    assert resumed.turn is not None
    assert (await resumed.turn).output == Stay("Rome", 2)
    assert len(await bodies(stage, OutputRefused)) == 2


async def test_schema_of_output_is_in_snapshot_of_agent() -> None:
    agent = Agent("helper", model=MODEL, output=Stay)
    stored: Any = agent.snapshot()["output"]
    assert stored["required"] == ["city", "nights"]


def test_agent_with_output_type_without_fields_is_rejected() -> None:
    with pytest.raises(WrongArgument, match="has no fields") as refused:
        Agent("helper", model=MODEL, output=list[int])
    assert refused.value.argument == "output"
