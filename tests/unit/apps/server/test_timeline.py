"""The time line: calls of a turn with their outcome, from the log."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import assistant, tool_call
from tests.fakes.served import served


@perdure.tool(effect="read")
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_turn_shows_its_calls_in_order(tmp_path: Path) -> None:
    agent = perdure.Agent("desk", model="scripted:desk", tools=[add])
    call = tool_call("c1", "add", {"a": 1, "b": 2})
    wrong = tool_call("c2", "add", {"a": "x"})
    async with served(tmp_path, [assistant(call, wrong), "three"], agents=[agent]) as server:
        session = await server.said("add")
        await server.said("more", session)
        shown = (await server.http.get(f"/v1/sessions/{session}/turns")).json()["items"]
        assert [turn["number"] for turn in shown] == [1, 2]
        calls = shown[0]["calls"]
        assert [each["type"] for each in calls].count("model") == 2
        tools = {each["status"]: each for each in calls if each["type"] == "tool"}
        assert tools["ok"]["input"] == {"a": 1, "b": 2}
        assert set(tools) == {"ok", "refused"} or set(tools) == {"ok", "error"}
        assert all(each["finishedAt"] for each in calls)
        one = await server.http.get(f"/v1/sessions/{session}/turns", params={"last": 1})
        assert [turn["number"] for turn in one.json()["items"]] == [2]
