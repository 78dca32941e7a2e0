"""Hooks of compaction, forks and navigation run once for each operation, wherever it happens."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from perdure.engine.hooks.points import HookName, HookPoint
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.config import CompactionSettings
from perdure.models.retry import RetryPolicy
from perdure.models.scenario import Fail, Reply, Say, Scenario, When
from perdure.models.scripted import ScriptedModel
from perdure.session.flows.graph import FlowNode, Graph
from perdure.session.messages import Usage, user
from tests.fakes.chats import Stage, says
from tests.fakes.flow_stage import FlowStage, ends

SUMMARY = "The person asked for several things, and all of them were done one after the other. "
FULL = Usage(9_900, 100)


def counting(*registries: Hooks) -> Counter[str]:
    """Count how often each hook point was called in all of `registries`."""
    counts: Counter[str] = Counter()

    def count(point: HookPoint) -> None:
        counts[point.name] += 1

    for hooks in registries:
        for name in get_args(HookName):
            hooks.on(name, count)
    return counts


def of(counts: Counter[str], *words: str) -> dict[str, int]:
    """Return the counts of the hook points whose names contain one of `words`."""
    return {name: n for name, n in counts.items() if name.endswith(words)}


async def test_hooks_on_forks_and_branch_changes_run_once_in_the_library() -> None:
    stage = Stage()
    session = await stage.store.create()
    counts = counting(stage.store.hooks)
    first = await session.append(user("one"))
    await session.append(user("two"))
    await session.fork()
    assert of(counts, "fork") == {"session_before_fork": 1, "session_fork": 1}
    await session.branch(first.id)
    assert of(counts, "tree") == {"session_before_tree": 1, "session_tree": 1}
    await session.branch_with_summary(None, "nothing came of it")
    assert of(counts, "tree") == {"session_before_tree": 2, "session_tree": 2}


async def test_branch_repeated_with_same_idempotency_key_runs_no_hook_again() -> None:
    stage = Stage()
    session = await stage.store.create()
    first = await session.append(user("one"))
    await session.append(user("two"))
    counts = counting(stage.store.hooks)
    moved = await session.branch(first.id, idempotency_key="k")
    assert await session.branch(first.id, idempotency_key="k") == moved
    assert counts["session_tree"] == 1


@pytest.mark.parametrize("hooks_of", ["store", "agent"])
async def test_compaction_and_branch_hooks_run_once_in_a_chat(hooks_of: str) -> None:
    own = Hooks()
    stage = Stage(says("one"), says("two"), says(SUMMARY * 3), says(SUMMARY * 3))
    settings = CompactionSettings(keep_recent_tokens=1)
    chat = await stage.chat(hooks=own, compaction=settings)
    counts = counting(stage.store.hooks if hooks_of == "store" else own)
    await chat.send("first " + "words " * 100)
    await chat.send("second")
    assert await chat.compact() is not None
    assert of(counts, "compact") == {"session_before_compact": 1, "session_compact": 1}
    (first, *_) = await chat.session.path()
    await chat.branch(first.id, with_summary=True)
    assert of(counts, "tree") == {"session_before_tree": 1, "session_tree": 1}
    await chat.session.fork()
    assert of(counts, "fork") == {"session_before_fork": 1, "session_fork": 1}


async def test_retry_of_a_summary_does_not_repeat_the_compaction_hooks() -> None:
    stage = Stage()
    failing = Reply(
        when=When(asks_summary=True), steps=(Fail("rate_limited", times=1), Say(SUMMARY * 3))
    )
    full = Reply(steps=(Say("one"),), usage=FULL)
    scenario = Scenario(name="test", rules=(failing, full), context_window=10_000)
    stage.models = ScriptedModel(scenario, clock=stage.clock)
    retry = RetryPolicy(max_attempts=3, first_wait_s=0.0, cap_s=0.0)
    chat = await stage.chat(retry=retry, compaction=CompactionSettings(keep_recent_tokens=1))
    counts = counting(stage.store.hooks)
    await chat.send("first " + "words " * 100)
    await chat.send("second")
    assert (await stage.kinds()).count("model_called") == 4
    assert of(counts, "compact") == {"session_before_compact": 1, "session_compact": 1}


@pytest.mark.parametrize("hooks_of", ["store", "agent"])
async def test_compaction_hooks_run_once_in_a_flow(tmp_path: Path, hooks_of: str) -> None:
    ask = "Which one?\n```handoff\ntype: prompt-human\n```"
    stage = FlowStage(
        tmp_path,
        Reply(when=When(asks_summary=True), steps=(Say(SUMMARY * 3),)),
        Reply(when=When(user_contains="Node `owner-intake`"), steps=(Say(ask),), usage=FULL),
        ends("the blue one", "forward-pass-closed"),
        window=10_000,
    )
    own = Hooks()
    counts = counting(stage.store.hooks if hooks_of == "store" else own)
    flow = await stage.flows("owner", hooks=own).start(
        Graph("alone", (FlowNode("owner-intake", "owner"),), ()), workspace=tmp_path
    )
    await flow.run()
    await flow.reply("the blue one")
    assert (await flow.run()).status == "awaiting_improvement_choice"
    assert of(counts, "compact") == {"session_before_compact": 1, "session_compact": 1}
    await (await flow.session("owner")).fork()
    assert of(counts, "fork") == {"session_before_fork": 1, "session_fork": 1}
