"""The cost of a session, with its tokens: unknown costs are never 0."""

from __future__ import annotations

from pathlib import Path

import pytest

import perdure
from perdure.apps.chat.session import AnswerOptions
from perdure.apps.session_costs import cost_lines
from perdure.client.agents.agent import Agent
from perdure.models.prices import Price, dollars, in_dollars
from tests.fakes.players import Theatre, asks, words


async def test_session_without_calls_has_no_tokens_and_no_cost() -> None:
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        async with answering.runtime:
            chat = await answering.begin(None, "hello")
            told = await cost_lines(store, chat.session.id, {})
    assert told == ["the log has no tokens and no cost of this session"]


async def test_session_cost_without_a_price_is_unknown() -> None:
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        async with answering.runtime:
            chat = await answering.begin(None, "hello")
            await chat.send("hello")
            told = await cost_lines(store, chat.session.id, {})
    assert told[0] == "the cost of this session is unknown: 1 call without a price"
    assert told[1].startswith("1 call of scripted:echo: ")
    assert told[1].endswith(" received")
    assert "[models.prices]" in told[2]


async def test_session_cost_is_computed_from_the_configured_price() -> None:
    price = Price(dollars(0), dollars(1_000_000))  # a dollar for each token received
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        async with answering.runtime:
            chat = await answering.begin(None, "hello")
            await chat.send("hello")
            assert (await chat.spent()).unpriced_calls == 1
            told = await cost_lines(store, chat.session.id, {"scripted:*": price})
            (used,) = await store.usage("model", prices={"scripted:*": price})
    assert len(told) == 2
    assert told[0] == f"this session cost ${used.usage.output_tokens}.00"
    assert "without a price" not in told[0]


async def test_calls_of_invoked_agents_are_part_of_the_cost() -> None:
    asked = asks("invoke_agent", json='{"agent": "scout", "input": "look"}')
    theatre = Theatre(main=[asked, words("ok")], scout=[words("a")])
    lead = Agent("lead", model="p:main", tools=("invoke_agent",))
    scout = Agent("scout", model="p:scout", description="Looks.")
    chat = await theatre.runtime(lead, scout).start("lead", id="s")
    await chat.send("go")
    told = await cost_lines(theatre.store, chat.session.id, {})
    assert told[0] == f"this session cost {in_dollars((await chat.spent()).cost_microcents)}"
    assert told[1].startswith("3 calls of p:main, p:scout: ")


async def test_chat_without_a_named_agent_uses_configured_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "perdure").mkdir()
    (tmp_path / "perdure" / "config.toml").write_text(
        '[models.prices]\n"scripted:echo" = {input = 1, output = 2}\n'
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    async with perdure.open("memory:") as store:
        answering = AnswerOptions(store, model="scripted:echo", scenario=None)
        async with answering.runtime:
            chat = await answering.begin(None, "hello")
            await chat.send("hello")
            spent = await chat.spent()
    assert spent.unpriced_calls == 0
    assert spent.cost_microcents > 0
