"""A fork can copy entries; the records of a store then count a copied call only once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

import perdure
from perdure import Usage, assistant, tool_call, user
from perdure.apps.maintenance.copy import copy_sessions
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock

USED = Usage(100, 20, cost_microcents=900)


@perdure.tool(effect="read")
def look(place: str) -> str:
    """Return what is at `place`."""
    return f"a heron at {place}"


AGENT = perdure.Agent("helper", model="x:y", tools=[look])


def answers() -> ScriptedModel:
    call = assistant(tool_call("c1", "look", {"place": "the pond"}))
    found = [call, *(assistant(text) for text in "abcd")]
    return ScriptedModel([msgspec.structs.replace(each, model="x:y", usage=USED) for each in found])


async def forked(store: perdure.Store, *, is_path: bool) -> tuple[str, str]:
    """Make a session, a fork of it, and a fork of that fork; each fork has one call of its own."""
    async with perdure.Runtime(store, agents=[AGENT], models=answers()) as runtime:
        chat = await runtime.start("helper")
        await chat.send("go")
        session = await store.open(chat.id)
        first = session.leaf
        await chat.send("on")
        fork = await session.fork(first if is_path else None)
        await (await runtime.resume(fork.id)).send("elsewhere")
        again = await fork.fork()
        await (await runtime.resume(again.id)).send("and there")
        return chat.id, fork.id


async def counts(store: perdure.Store) -> tuple[int | None, ...]:
    """Return totals of a store: model calls, input, cost, messages, tool calls, listed calls."""
    (used,) = await store.usage()
    (active,) = await store.activity()
    sums = (used.calls, used.usage.input_tokens, used.usage.cost_microcents)
    return *sums, active.messages, active.tool_calls, len(await store.tool_calls())


ONCE = (5, 500, 4500, 9, 1, 1)
"""The counts if copied entries count once: 5 model calls, 4 questions, 5 answers, 1 tool call."""


@pytest.mark.parametrize("is_path", [False, True])
async def test_copied_calls_of_a_fork_are_counted_once(tmp_path: Path, *, is_path: bool) -> None:
    async with perdure.open(f"jsonl:///{tmp_path}", clock=ManualClock()) as store:
        _, fork = await forked(store, is_path=is_path)
        assert await counts(store) == ONCE
        (own,) = await store.usage("session", session=fork)
        assert own.calls == 1


async def test_copied_calls_are_still_counted_after_the_origin_is_erased(tmp_path: Path) -> None:
    async with perdure.open(f"jsonl:///{tmp_path}", clock=ManualClock()) as store:
        origin, _ = await forked(store, is_path=False)
        assert await counts(store) == ONCE  # the store caches what it has counted
        await store.erase(origin, forks="keep")
        assert await counts(store) == ONCE


async def test_copied_calls_of_a_subagent_fork_are_counted_once(tmp_path: Path) -> None:
    helper = perdure.Agent("helper", model="x:y")
    boss = perdure.Agent("boss", model="x:y", tools=["invoke_agent"])
    call = assistant(tool_call("c1", "invoke_agent", {"agent": "helper", "input": "go"}))
    said = [call, *(assistant(text) for text in "abc")]
    models = ScriptedModel(
        [msgspec.structs.replace(each, model="x:y", usage=USED) for each in said]
    )
    async with (
        perdure.open(f"jsonl:///{tmp_path}", clock=ManualClock()) as store,
        perdure.Runtime(store, agents=[boss, helper], models=models) as runtime,
    ):
        chat = await runtime.start("boss")
        await chat.send("start")
        (child,) = [each.id for each in await store.recent(scope="all") if each.id != chat.id]
        before = (await store.usage())[0].calls
        fork = await (await store.open(child)).fork()
        assert (await store.usage())[0].calls == before
        await (await runtime.resume(fork.id)).send("on")
        assert (await store.usage())[0].calls == before + 1


async def test_copying_a_store_does_not_count_copied_calls_twice(tmp_path: Path) -> None:
    async with (
        perdure.open(f"sqlite:///{tmp_path / 'a.db'}", clock=ManualClock()) as source,
        perdure.open(f"jsonl:///{tmp_path / 'files'}") as files,
        perdure.open(f"sqlite:///{tmp_path / 'b.db'}") as target,
    ):
        await forked(source, is_path=False)
        assert await counts(source) == ONCE
        await copy_sessions(source, files)
        assert await counts(files) == ONCE
        await copy_sessions(files, target)
        assert await counts(target) == ONCE


async def test_equal_messages_of_a_fork_and_its_parent_are_both_counted(tmp_path: Path) -> None:
    clock = ManualClock()
    said = msgspec.structs.replace(assistant("hello"), model="x:y", usage=USED)
    async with perdure.open(f"jsonl:///{tmp_path}", clock=clock) as store:
        session = await store.create()
        await session.append(user("hi"), said)
        clock.advance(1)
        fork = await session.fork()
        clock.advance(1)
        await session.append(said)
        await fork.append(said)
        assert (await store.usage())[0].calls == 3
