"""An expired question ends its turn, even if no process runs the turn."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.errors import QuestionClosed, TurnFailed
from perdure.session.ledger import TurnFinished
from perdure.session.notes import Question, QuestionWithdrawn
from perdure.tools.spec import ToolSpec
from tests.fakes.chats import until
from tests.fakes.players import Theatre, asks

EXPIRES_S = 60.0
INVOKE = asks("invoke_agent", json=json.dumps({"agent": "scout", "input": "write it"}))


async def run(call: object) -> Any:
    raise AssertionError("nobody approved it")


STRIKE = ToolSpec("strike", "Strike.", {"type": "object"}, run, action="os", is_gated=True)


async def asking(theatre: Theatre, **settings: Any) -> tuple[Chat, str]:
    """Return a chat whose turn waits for an answer, and the id of the question."""
    chat = await theatre.chat(tools=(STRIKE,), question_expires_s=EXPIRES_S, **settings)
    chat.send("go")
    return chat, await asked(theatre)


async def asked(theatre: Theatre) -> str:
    async def is_asked() -> bool:
        return bool(await theatre.store.questions())

    await until(is_asked)
    return (await theatre.store.questions())[0].id


async def ended(theatre: Theatre, stream: str = "s") -> tuple[str | None, list[str]]:
    """Return the failure of a session's only turn, and the reasons of its withdrawn questions."""
    (finished,) = await theatre.bodies(TurnFinished, stream)
    withdrawn = await theatre.bodies(QuestionWithdrawn, stream)
    return finished.failure, [each.reason for each in withdrawn]


@pytest.mark.parametrize("topic", ["approval", "budget"])
async def test_expired_question_ends_the_running_turn(topic: str) -> None:
    theatre = Theatre(main=[asks("strike")] if topic == "approval" else [])
    settings = {"max_cost_microcents": 1} if topic == "budget" else {}
    chat, question = await asking(theatre, **settings)
    await asyncio.sleep(0.01)  # until the turn waits for that moment
    theatre.clock.advance(EXPIRES_S - 1)
    await asyncio.sleep(0.01)
    assert chat.turn is not None
    assert chat.turn.is_waiting
    theatre.clock.advance(1)
    with pytest.raises(TurnFailed, match="question_expired"):
        await chat.turn
    assert await ended(theatre) == ("question_expired", ["expired"])
    with pytest.raises(QuestionClosed, match="expired"):
        await theatre.store.answer(question, "allow" if topic == "approval" else "stop", by="late")
    theatre.players.price = 0
    assert (await chat.send("again")).text == "done"


async def test_late_answer_to_a_suspended_turn_is_rejected() -> None:
    theatre = Theatre(main=[asks("strike")])
    chat, question = await asking(theatre)
    await chat.suspend()
    theatre.clock.advance(EXPIRES_S)
    assert await theatre.store.questions() == []
    for choice in ("allow", "deny"):
        with pytest.raises(QuestionClosed, match="expired"):
            await theatre.store.answer(question, choice, by="late")
    again = await theatre.runtime(chat.agent).resume("s", chat.agent)
    assert again.turn is not None
    with pytest.raises(TurnFailed, match="question_expired"):
        await again.turn
    assert await ended(theatre) == ("question_expired", ["expired"])


async def test_idle_session_ends_after_its_question_expired() -> None:
    theatre = Theatre(main=[asks("strike")])
    chat, _ = await asking(theatre)
    idle = theatre.runtime(chat.agent, idle_timeout_s=30.0)
    theatre.clock.advance(EXPIRES_S - 1)
    assert await idle.end_idle() == []  # its turn is open
    await chat.suspend()
    theatre.clock.advance(1)
    assert await idle.end_idle() == ["s"]
    assert await ended(theatre) == ("question_expired", ["expired"])


async def test_session_with_an_open_question_does_not_end_as_idle() -> None:
    theatre = Theatre(main=[asks("strike")])
    chat, question = await asking(theatre)
    await chat.suspend()
    theatre.clock.advance(EXPIRES_S - 1)
    assert await theatre.runtime(chat.agent, idle_timeout_s=1.0).end_idle() == []
    await theatre.store.answer(question, "deny", by="me")
    theatre.clock.advance(10)
    again = await theatre.runtime(chat.agent).resume("s", chat.agent)
    assert again.turn is not None
    assert (await again.turn).text == "done"


async def test_expired_question_of_an_invoked_agent_reaches_the_parent() -> None:
    theatre = Theatre(lead=[INVOKE], scout=[asks("strike")])
    agents = [
        Agent(name, model=f"p:{name}", tools=("invoke_agent", STRIKE), question_expires_s=EXPIRES_S)
        for name in ("lead", "scout")
    ]
    chat = await theatre.runtime(*agents).start("lead", id="s")
    turn = chat.send("go")
    child = (await asked(theatre)).rpartition("/")[0]
    await asyncio.sleep(0.01)
    theatre.clock.advance(EXPIRES_S)
    assert (await turn).text == "done"
    assert await ended(theatre, child) == ("question_expired", ["expired"])
    results = [m.text for m in await chat.session.messages() if m.role == "tool"]
    assert "in time" in results[0]


async def test_question_without_an_expiry_time_stays_open() -> None:
    theatre = Theatre(main=[asks("strike")])
    chat = await theatre.chat(tools=(STRIKE,))
    chat.send("go")
    question = await asked(theatre)
    theatre.clock.advance(10 * 365 * 24 * 3600)
    await asyncio.sleep(0.01)
    assert chat.turn is not None
    assert chat.turn.is_waiting
    await theatre.store.answer(question, "deny", by="me")
    assert (await chat.turn).text == "done"
    (kept,) = await theatre.bodies(Question)
    assert kept.expires_at is None
