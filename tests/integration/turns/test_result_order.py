"""Every program gets each result of parallel calls after its call, before the next answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast, get_args

import pytest

import perdure
import perdure.types
from perdure.adapters.openai_agents import PerdureSession
from perdure.models.scenario import CallTools, Scenario, ScriptedCall
from perdure.models.scripted import ScriptedModel
from perdure.session.messages import ToolResultPart, assistant, tool_call, user
from tests.fakes.chats import MODEL, says
from tests.fakes.clock import ManualClock
from tests.fakes.provider_rules import all_problems

CALLS = ("call_0", "call_1", "call_2")
LINES = ("perdure", "pi", "operator", "claude-code", "codex")
"""Formats with one entry a line."""


async def ended_in_reverse(store: perdure.Store) -> perdure.Session:
    """Return the session of a turn whose calls end in reverse order."""
    ends = [asyncio.Event() for _ in range(len(CALLS) + 1)]
    ends[-1].set()
    ended: list[int] = []

    async def look(number: int) -> str:
        await ends[number + 1].wait()
        ended.append(number)
        ends[number].set()
        return f"saw {number}"

    calls = tuple(
        ScriptedCall("look", json.dumps({"number": number}), id=id)
        for number, id in enumerate(CALLS)
    )
    scenario = Scenario(name="test", sequence=(says("Well.", CallTools(calls)), says("finally")))
    agent = perdure.Agent("helper", model=MODEL, tools=(perdure.tool(effect="read")(look),))
    models = ScriptedModel(scenario, clock=ManualClock())
    chat = await perdure.Runtime(store, [agent], models=models).start(agent, id="oa:s")
    await chat.send("go")
    assert ended == [2, 1, 0]
    return chat.session


async def stored_in_reverse(store: perdure.Store) -> perdure.Session:
    """Return a session of another program that stored the last result first."""
    session = await store.create(id="oa:s")
    parts = [tool_call(id, "look", {"number": number}) for number, id in enumerate(CALLS)]
    await session.append(user("go"))
    await session.append(assistant("Well.", *parts))
    for number, id in reversed(tuple(enumerate(CALLS))):
        await session.append(perdure.tool_result(id, f"saw {number}"))
    await session.append(assistant("finally"))
    return session


def as_results(text: str) -> list[list[str]]:
    """Return the call ids in each line of an export with calls; "finally" marks the answer."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if '"tool_started"' in line or '"tool_finished"' in line:
            continue  # the ledger of a turn repeats the ids
        ids = [id for id in CALLS if id in line]
        found += [ids] if ids else [["finally"]] if "finally" in line else []
    return found


@pytest.mark.parametrize("make", [ended_in_reverse, stored_in_reverse])
async def test_results_follow_their_calls_in_every_export(make: Any) -> None:
    async with perdure.open("memory:") as store:
        session: perdure.Session = await make(store)
        assert (await store.verify()).is_ok
        for format in LINES:
            assert format in get_args(perdure.types.ExportFormat)
            text = (await session.export(cast("perdure.types.ExportFormat", format))).content
            found = as_results(text.decode())
            ids = [id for ids in found[: found.index(["finally"])] for id in ids]
            # The first mention of a call is the call, the last its result.
            assert sorted(set(ids[: -len(CALLS)])) == sorted(CALLS), format
            assert sorted(ids[-len(CALLS) :]) == sorted(CALLS), format
            if format == "claude-code":  # one message has all results, as Anthropic's API wants
                assert found[-2] == list(CALLS)


@pytest.mark.parametrize("make", [ended_in_reverse, stored_in_reverse])
async def test_request_after_parallel_calls_is_valid_for_every_provider(make: Any) -> None:
    async with perdure.open("memory:") as store:
        session: perdure.Session = await make(store)
        context = await session.context()
        messages = [each.message for each in context.messages]
        assert all_problems(messages) == []
        results = [
            part.call_id
            for message in messages
            for part in message.parts
            if isinstance(part, ToolResultPart)
        ]
        assert sorted(results) == sorted(CALLS)


@pytest.mark.parametrize("make", [ended_in_reverse, stored_in_reverse])
async def test_openai_sdk_gets_tool_results_after_their_calls(make: Any) -> None:
    async with perdure.open("memory:") as store:
        await make(store)
        items = [cast("Any", item) for item in await PerdureSession("s", store).get_items()]
        kinds = [item.get("type", item.get("role")) for item in items]
        calls = [at for at, kind in enumerate(kinds) if kind == "function_call"]
        outputs = [at for at, kind in enumerate(kinds) if kind == "function_call_output"]
        assert len(calls) == len(outputs) == len(CALLS)
        assert max(calls) < min(outputs)
        assert max(outputs) < len(items) - 1
        assert {items[at]["call_id"] for at in calls} == {items[at]["call_id"] for at in outputs}
        assert {"role": "assistant", "content": "Well."} in items
        assert [item.get("content") for item in items if "role" in item] == [
            "go",
            "Well.",
            "finally",
        ]


@pytest.mark.parametrize("make", [ended_in_reverse, stored_in_reverse])
async def test_items_of_one_message_are_popped_one_by_one(make: Any) -> None:
    async with perdure.open("memory:") as store:
        await make(store)
        session = PerdureSession("s", store)
        items = await session.get_items()
        while items:
            assert await session.pop_item() == items.pop()
            assert await session.get_items() == items
        assert await session.pop_item() is None
        assert (await store.verify()).is_ok
