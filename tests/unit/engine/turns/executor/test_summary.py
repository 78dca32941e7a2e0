"""Compacting a session's context by hand."""

from __future__ import annotations

import math

import pytest

from perdure.context.tokens import unscaled_around
from perdure.engine.turns.config import CompactionSettings
from perdure.errors import TurnFailed
from perdure.models.protocol import ToolDeclaration
from perdure.models.retry import RetryPolicy
from perdure.models.scenario import Say, Scenario, When
from perdure.models.scripted import ScriptedModel
from perdure.session.codec import body_of
from perdure.session.kinds import Compaction
from perdure.session.messages import assistant, user
from tests.fakes.chats import Stage, says

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


async def test_compaction_counts_instructions_and_tools() -> None:
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
    with pytest.raises(TurnFailed, match="too short"):
        await chat.compact()
    assert "compaction" not in await stage.kinds()


async def test_compaction_without_messages_to_summarise_is_reported() -> None:
    stage = Stage()
    chat = await stage.chat(retry=RetryPolicy(max_attempts=1))
    assert await chat.compact() is None
