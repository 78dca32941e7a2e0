"""The cost of a session, with its tokens: unknown costs are never 0."""

from __future__ import annotations

import perdure
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.session_costs import cost_lines


async def test_session_without_calls_has_no_tokens_and_no_cost() -> None:
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        async with answering.runtime:
            chat = await answering.begin(None, "hello")
            told = await cost_lines(store, chat, {})
    assert told == ["the log has no tokens and no cost of this session"]


async def test_own_call_without_a_price_has_an_unknown_cost() -> None:
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        async with answering.runtime:
            chat = await answering.begin(None, "hello")
            await chat.send("hello")
            told = await cost_lines(store, chat, {})
    assert told[0] == "the cost of this session is unknown: 1 call without a price"
    assert told[1].startswith("1 call of scripted:echo: ")
    assert told[1].endswith(" received")
    assert "[models.prices]" in told[2]
