"""The compaction of a session's context on request."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.chat import Chat
from perdure.client.agents.runtime import Runtime
from perdure.context.tokens import unscaled_around
from perdure.engine.turns.config import CompactionSettings, OnExceed
from perdure.errors import TurnFailed
from perdure.models.prices import Price
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, ToolDeclaration
from perdure.models.retry import RetryPolicy
from perdure.models.scenario import Say, Scenario, When
from perdure.models.scripted import ScriptedModel
from perdure.session.clock import Clock
from perdure.session.codec import body_of
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, user
from tests.fakes.chats import MODEL, Stage, says

KEEP_LITTLE = CompactionSettings(keep_recent_tokens=200)
SUMMARY = "The goal was to count. " * 20


async def stage_with(summary: str) -> Stage:
    stage = Stage()
    rule = says(Say(summary), when=When(asks_summary=True))
    scenario = Scenario(name="test", rules=(rule, says("go on")))
    stage.models = ScriptedModel(scenario, clock=stage.clock)
    chat = await stage.chat(compaction=KEEP_LITTLE)
    for n in range(6):
        await chat.session.append(user(f"question {n} " * 40), assistant(f"answer {n} " * 40))
    return stage


async def test_summary_replaces_old_messages_and_can_be_undone() -> None:
    stage = await stage_with(SUMMARY)
    chat = await stage.runtime().resume("s")
    before = (await chat.session.context()).messages
    entry = await chat.compact(focus="the counting")
    assert entry is not None
    body = body_of(entry)
    assert isinstance(body, Compaction)
    assert SUMMARY.strip() in body.summary
    assert body.tokens_before is not None
    assert body.tokens_after is not None
    assert body.tokens_after < body.tokens_before
    after = (await chat.session.context()).messages
    assert len(after) < len(before)
    await chat.session.uncompact()
    assert (await chat.session.context()).messages == before


async def test_next_turn_continues_from_summary() -> None:
    stage = await stage_with(SUMMARY)
    chat = await stage.runtime().resume("s")
    await chat.compact()
    assert (await chat.send("and?")).text == "go on"


async def test_token_counts_of_a_compaction_include_instructions_and_tools() -> None:
    stage = await stage_with(SUMMARY)
    system = "Count slowly. " * 400
    chat = await stage.chat(["read_file"], id="t", instructions=system, compaction=KEEP_LITTLE)
    for n in range(6):
        await chat.session.append(user(f"question {n} " * 40), assistant(f"answer {n} " * 40))
    tools = [ToolDeclaration(*each) for each in chat.agent.registry.declarations()]
    around = math.ceil(unscaled_around(system, tools))
    before = (await chat.session.context()).tokens + around
    entry = await chat.compact()
    assert entry is not None
    body = body_of(entry)
    assert isinstance(body, Compaction)
    assert (await chat.session.context()).tokens + around == body.tokens_after
    assert body.tokens_before == before


async def test_too_short_summary_is_rejected_without_changes() -> None:
    stage = await stage_with("ok")
    chat = await stage.runtime().resume("s")
    with pytest.raises(TurnFailed, match=r"too short .* 2 characters .* at least 20") as failed:
        await chat.compact()
    assert failed.value.failure == "summary_too_short"
    assert "compaction" not in await stage.kinds()


class Recorded(ScriptedModel):
    """A model with a window of 4000 tokens and good summaries. `requests` contains its requests."""

    def __init__(self, clock: Clock) -> None:
        rule = says(Say(SUMMARY), when=When(asks_summary=True))
        rules = (rule, says("go on"))
        super().__init__(Scenario(name="test", rules=rules, context_window=4_000), clock=clock)
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.requests.append(request)
        return super().stream(request)


class Unmeasured(Recorded):
    """A model that does not report the size of its window."""

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model)


async def long_session(stage: Stage, compaction: CompactionSettings) -> None:
    chat = await stage.chat(compaction=compaction)
    for n in range(30):
        await chat.session.append(user(f"question {n} " * 100), assistant(f"answer {n} " * 100))


@pytest.mark.parametrize("kind", [Recorded, Unmeasured])
async def test_history_larger_than_the_window_is_summarised_in_parts(
    kind: type[Recorded],
) -> None:
    stage = Stage()
    stage.models = model = kind(stage.clock)
    await long_session(stage, KEEP_LITTLE)
    chat = await stage.runtime().resume("s")
    entry = await chat.compact()
    assert entry is not None
    body = body_of(entry)
    assert isinstance(body, Compaction)
    assert body.summary == SUMMARY.strip()
    prompts = [request.messages[-1].text for request in model.requests]
    assert all(f"question {n} " in "".join(prompts) for n in range(29))
    assert f"<previous-summary>\n{SUMMARY.strip()}" in prompts[-1]
    assert (await chat.send("and?")).text == "go on"


async def test_session_of_a_model_with_a_larger_window_continues_with_a_summary() -> None:
    stage = Stage()
    stage.models = Recorded(stage.clock)
    await long_session(stage, CompactionSettings())
    chat = await stage.runtime().resume("s")
    assert (await chat.send("and?")).text == "go on"
    assert "compaction" in await stage.kinds()
    assert (await chat.session.context()).tokens < 4_000
    assert (await chat.send("and now?")).text == "go on"


class Overstated(Recorded):
    """A model whose window is smaller than the window that it reports."""

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, context_window=100_000)


async def limited_chat(on_exceed: OnExceed) -> tuple[Stage, Chat, int]:
    """Return a chat and its cost limit, which allows a summary in only one request."""
    stage = Stage()
    stage.models = model = Overstated(stage.clock)
    await long_session(stage, KEEP_LITTLE)
    tokens = (await (await stage.runtime().resume("s")).session.context()).tokens
    limit = tokens + KEEP_LITTLE.summary_tokens + 100
    agent = Agent(
        "helper",
        model=MODEL,
        compaction=KEEP_LITTLE,
        max_cost_microcents=limit,
        on_exceed=on_exceed,
        max_output_tokens=10,
    )
    prices = {MODEL: Price(1_000_000, 1_000_000)}  # one micro-cent for each token
    runtime = Runtime(stage.store, [agent], models=model, prices=prices)
    return stage, await runtime.resume("s"), limit


async def test_summary_stops_before_its_cost_exceeds_the_budget() -> None:
    stage, chat, limit = await limited_chat("fail")
    with pytest.raises(TurnFailed, match="its next part could cost more") as failed:
        await chat.compact()
    assert failed.value.failure == "budget_exceeded"
    assert 0 < (await chat.spent()).cost_microcents <= limit
    assert "compaction" not in await stage.kinds()


async def test_summary_in_a_turn_stays_within_the_budget() -> None:
    stage, chat, limit = await limited_chat("fail")
    with pytest.raises(TurnFailed) as failed:
        await chat.send("and?")
    assert failed.value.failure == "budget_exceeded"
    assert 0 < (await chat.spent()).cost_microcents <= limit
    assert "compaction" not in await stage.kinds()


async def test_summary_can_exceed_a_budget_that_only_warns() -> None:
    _, chat, limit = await limited_chat("warn")
    assert await chat.compact() is not None
    assert (await chat.spent()).cost_microcents > limit


async def test_compaction_without_messages_to_summarise_is_reported() -> None:
    stage = Stage()
    chat = await stage.chat(retry=RetryPolicy(max_attempts=1))
    assert await chat.compact() is None
