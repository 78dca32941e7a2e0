"""The record of tool calls."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure import assistant, tool_call, tool_result, user
from perdure.session.ids import StreamId
from perdure.testing import ScriptedModel
from tests.fakes.clock import START_MS, ManualClock, SeededRandom


@perdure.tool(effect="read")
def divide(a: int, b: int) -> str:
    """Divide two numbers."""
    if b == 0:
        raise perdure.errors.ToolError("divide", "division by zero")
    return str(a // b)


AGENT = perdure.Agent("helper", model="x:y", tools=[divide])
BOTH = assistant(
    tool_call("c1", "divide", {"a": 6, "b": 3}), tool_call("c2", "divide", {"a": 1, "b": 0})
)


async def test_tool_calls_have_input_output_and_outcome() -> None:
    model = ScriptedModel([BOTH, assistant(tool_call("c3", "nothing", {"x": 1})), "Done."])
    async with (
        perdure.open("memory:", clock=ManualClock()) as store,
        perdure.Runtime(store, agents=[AGENT], models=model) as runtime,
    ):
        chat = await runtime.start("helper")
        await chat.send("go")
        one, two, three = await store.tool_calls(session=chat.id)
        assert (one.id, one.name, one.input, one.output) == ("c1", "divide", {"a": 6, "b": 3}, "2")
        assert (one.success, one.outcome, one.error) == (True, "ok", None)
        assert (one.session, one.called_at, one.duration_ms) == (chat.id, START_MS, 0)
        entry = await store.backend.entry(StreamId(chat.id), one.entry_id)
        assert entry.kind == "tool_started"
        assert (two.success, two.outcome) == (False, "error")
        assert "division by zero" in (two.error or "")
        assert "division by zero" in (two.output or "")
        assert (three.name, three.success) == ("nothing", False)
        assert await store.tool_calls(failed=True) == [two, three]
        assert await store.tool_calls(failed=False) == [one]
        assert await store.tool_calls(tool="divide", last=1) == [two]
        assert await store.tool_calls(last=0) == []


async def test_appended_tool_results_are_listed_with_their_calls() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        asked = await session.append(user("go"), BOTH)
        await session.append(tool_result("c1", "2"), tool_result("c2", "no", is_error=True))
        await session.append(assistant(tool_call("c1", "divide", {"a": 8, "b": 2})))
        found = await store.tool_calls(session=session.id)
        assert [(each.output, each.success, each.error) for each in found] == [
            ("2", True, None),
            ("no", False, "no"),
            (None, None, None),
        ]
        assert found[0].entry_id == asked[1].id
        assert found[0].duration_ms is None
        assert await store.tool_calls(failed=True) == [found[1]]


async def test_newest_tool_calls_are_found_without_reading_old_sessions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    async with perdure.open("memory:", clock=clock, random=SeededRandom()) as store:
        ids: list[str] = []
        for _ in range(300):
            clock.advance(60)
            session = await store.create()
            ids.append(session.id)
            await session.append(user("go"), assistant(tool_call("c", "divide", {})))
            await session.append(tool_result("c", "done"))
        read: set[str] = set()
        entries = store.backend.entries

        async def counted(stream: Any, *rest: Any) -> Any:
            read.add(stream)
            return await entries(stream, *rest)

        monkeypatch.setattr(store.backend, "entries", counted)
        found = await store.tool_calls(last=3)
        assert [each.session for each in found] == ids[-3:]
        assert len(read) <= 4
        assert len(await store.tool_calls(last=None)) == 300


async def test_reading_tool_calls_of_an_unknown_session_raises_session_not_found() -> None:
    async with perdure.open("memory:") as store:
        with pytest.raises(perdure.errors.SessionNotFound):
            await store.tool_calls(session="ghost")
        with pytest.raises(ValueError, match="last"):
            await store.tool_calls(last=-1)


async def test_tool_calls_of_an_erased_session_are_not_listed() -> None:
    async with perdure.open("memory:") as store:
        session = await store.create()
        await session.append(user("go"), BOTH)
        await session.fork()
        await store.erase(session.id, forks="keep")
        assert await store.tool_calls(session=session.id) == []
        assert await store.tool_calls() == []
