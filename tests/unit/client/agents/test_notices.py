"""Reports of a runtime to its program: questions that block turns, models without a price."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.reads import OpenQuestion
from perdure.errors import TurnSuspended, Waiting
from perdure.events.types import Event
from perdure.tools.spec import ToolSpec
from tests.fakes.chats import until
from tests.fakes.players import Theatre, asks, words


async def run(call: object) -> Any:
    return "struck"


STRIKE = ToolSpec("strike", "Strike.", {"type": "object"}, run, action="os", is_gated=True)
INVOKE = asks("invoke_agent", json=json.dumps({"agent": "scout", "input": "strike it"}))


async def waiting_chat(theatre: Theatre, **options: Any) -> Chat:
    """A chat whose first turn asks before it runs `STRIKE`."""
    return await theatre.chat(tools=(STRIKE,), options=options)


async def test_turn_with_an_open_question_can_raise_instead_of_waiting() -> None:
    theatre = Theatre(main=[asks("strike")])
    chat = await waiting_chat(theatre)
    turn = chat.send("go", while_waiting="raise")
    for _ in range(2):
        with pytest.raises(Waiting, match="waits for an answer to 's/") as caught:
            await turn
        (question,) = await theatre.store.questions()
        assert caught.value.question == question
        assert caught.value.questions == (question,)
        assert turn.is_waiting
    (question,) = await theatre.store.questions()
    await theatre.store.answer(question.id, "allow", by="me")
    assert (await turn).text == "done"
    assert (await chat.send("again", while_waiting="raise")).text == "done"


@pytest.mark.parametrize("is_invoked", [False, True])
async def test_iteration_of_a_waiting_turn_raises_after_the_last_event(
    is_invoked: bool,
) -> None:
    theatre = Theatre(main=[asks("strike"), words("hit")], lead=[INVOKE], scout=[asks("strike")])
    tools = {"lead": ("invoke_agent", STRIKE), "scout": (STRIKE,), "main": (STRIKE,)}
    agents = [Agent(n, model=f"p:{n}", tools=own) for n, own in tools.items()]
    name = "lead" if is_invoked else "main"
    chat = await theatre.runtime(*agents).start(name, id="s")
    turn = chat.send("go", while_waiting="raise")
    questions: list[OpenQuestion] = []
    for _ in range(2):
        told: list[str] = []

        async def iterated(told: list[str]) -> None:
            async with asyncio.timeout(60):
                async for event in turn:
                    told += [event.type] if isinstance(event, Event) else []

        with pytest.raises(Waiting) as caught:
            await iterated(told)
        questions = await theatre.store.questions()
        assert caught.value.questions == tuple(questions)
        assert told == (await theatre.types())[1:]  # all but the session's start
        assert turn.is_waiting
    await theatre.store.answer(questions[0].id, "allow", by="me")
    async with asyncio.timeout(60):
        types = [event.type async for event in turn]
    assert types[-1] == "session:turn_completed"


async def test_parent_turn_raises_if_an_invoked_agent_asks_a_question() -> None:
    theatre = Theatre(lead=[INVOKE], scout=[asks("strike")])
    agents = [Agent(n, model=f"p:{n}", tools=("invoke_agent", STRIKE)) for n in ("lead", "scout")]
    chat = await theatre.runtime(*agents).start("lead", id="s")
    turn = chat.send("go", while_waiting="raise")
    with pytest.raises(Waiting) as caught:
        await turn
    (question,) = await theatre.store.questions()
    assert caught.value.questions == (question,)
    assert not question.id.startswith("s/")
    await chat.abort()


async def test_question_callback_is_called_during_the_turn_and_can_answer() -> None:
    theatre = Theatre(main=[asks("strike"), asks("strike")])
    asked: list[OpenQuestion] = []

    async def on_question(question: OpenQuestion) -> None:
        asked.append(question)
        await theatre.store.answer(question.id, "allow", by="program")
        if len(asked) == 1:
            raise LookupError("in the callback")

    chat = await waiting_chat(theatre, on_question=on_question)
    assert (await chat.send("go")).text == "done"
    assert [each.question.topic for each in asked] == ["approval", "approval"]


async def test_question_callback_can_suspend_its_runtime(caplog: pytest.LogCaptureFixture) -> None:
    theatre = Theatre(main=[asks("strike")])
    suspended = asyncio.Event()

    async def on_question(question: OpenQuestion) -> None:
        await runtime.suspend()
        suspended.set()

    agent = Agent("main", model="p:main", tools=(STRIKE,))
    async with asyncio.timeout(60), theatre.runtime(agent, on_question=on_question) as runtime:
        chat = await runtime.start("main", id="s")
        with pytest.raises(TurnSuspended):
            await chat.send("go")
        await suspended.wait()
    assert len(await theatre.store.questions()) == 1
    assert not [each for each in caplog.records if each.levelno == logging.ERROR]


async def test_failing_question_callback_logs_one_line_and_leaves_the_question_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theatre = Theatre(main=[asks("strike")])

    def on_question(question: OpenQuestion) -> None:
        raise LookupError("no desk has\nthe key sk-ant-api03-" + "a1B2" * 20)

    chat = await waiting_chat(theatre, on_question=on_question)
    with pytest.raises(Waiting):
        await chat.send("go", while_waiting="raise")

    async def is_logged() -> bool:
        return bool(errors())

    def errors() -> list[logging.LogRecord]:
        return [each for each in caplog.records if each.levelno == logging.ERROR]

    await until(is_logged)
    (question,) = await theatre.store.questions()
    (record,) = errors()
    line = record.getMessage()
    assert line.startswith(
        f"on_question failed for {question.id} with LookupError: no desk has the key"
    )
    assert "test_notices.py:" in line
    assert line.endswith("; the question stays open, and Store.answer answers it")
    assert "a1B2" not in line
    assert "\n" not in line
    assert record.exc_info is None
    await theatre.store.answer(question.id, "allow", by="me")
    assert chat.turn is not None
    assert (await chat.turn).text == "done"


async def test_question_callback_receives_the_question_of_an_invoked_agent() -> None:
    theatre = Theatre(lead=[INVOKE], scout=[asks("strike")])
    agents = [Agent(n, model=f"p:{n}", tools=("invoke_agent", STRIKE)) for n in ("lead", "scout")]
    asked: list[OpenQuestion] = []
    runtime = theatre.runtime(*agents, on_question=asked.append)
    chat = await runtime.start("lead", id="s")
    chat.send("go")

    async def is_asked() -> bool:
        return bool(asked)

    await until(is_asked)
    assert [each.id for each in asked] == [each.id for each in await theatre.store.questions()]
    await runtime.close()


async def test_closing_the_runtime_does_not_wait_for_the_question_callback() -> None:
    theatre = Theatre(main=[asks("strike")])
    ended: list[str] = []
    begun = asyncio.Event()

    async def on_question(question: OpenQuestion) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    agent = Agent("helper", model="p:main", tools=(STRIKE,))
    async with asyncio.timeout(60), theatre.runtime(agent, on_question=on_question) as runtime:
        (await runtime.start("helper", id="s")).send("go")
        await begun.wait()
    assert ended == ["cancelled"]
    assert len(await theatre.store.questions()) == 1


async def test_turn_that_begins_to_wait_for_an_answer_logs_a_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theatre = Theatre(main=[asks("strike")])
    chat = await waiting_chat(theatre)
    with pytest.raises(Waiting):
        await chat.send("go", while_waiting="raise")
    (question,) = await theatre.store.questions()
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert lines == [f"session s waits for an answer to {question.id}: {question.question.text}"]


@pytest.mark.parametrize(
    ("on_exceed", "consequence"),
    [
        ("pause_for_approval", "waits for an answer before it calls the model"),
        ("fail", "each of its turns fails"),
        ("warn", "cannot be counted"),
    ],
)
async def test_budget_with_an_unpriced_model_logs_a_warning(
    on_exceed: str, consequence: str, caplog: pytest.LogCaptureFixture
) -> None:
    theatre = Theatre()
    theatre.players.price = None
    chat = await theatre.chat(
        fallbacks=["p:other"], max_cost_microcents=200_000_000, on_exceed=on_exceed
    )
    assert "so the limit of $2.00 cannot be kept" in caplog.text
    assert "the price of p:main and of p:other is unknown" in caplog.text
    assert consequence in caplog.text
    caplog.clear()
    await theatre.runtime(chat.agent).resume("s")
    assert "p:main" in caplog.text


async def test_known_price_or_missing_budget_causes_no_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theatre = Theatre()
    await theatre.chat(id="priced", max_cost_microcents=1)
    theatre.players.price = None
    await theatre.chat(id="unlimited")
    assert caplog.records == []
