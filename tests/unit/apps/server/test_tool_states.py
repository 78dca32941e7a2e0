"""The states of tool calls in the messages of a session."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure import assistant, tool_call
from perdure.apps.server.tool_states import call_states
from tests.fakes.served import served


@perdure.tool(effect="read")
async def look(place: str) -> str:
    """Look somewhere."""
    return f"in {place}"


AGENT = perdure.Agent("desk", model="scripted:desk", tools=[look])


async def test_state_of_a_finished_tool_call_is_its_outcome(tmp_path: Path) -> None:
    looks = assistant(tool_call("c1", "look", {"place": "shed"}))
    async with served(tmp_path, [looks, looks, "done"], agents=[AGENT]) as server:
        session = await server.store.open(await server.said("look"))
        first, again = [
            entry
            for entry in await session.path(kind="message")
            if entry.message and entry.message.tool_calls
        ]
        states = await call_states(session, await session.path(kind="message"))
        assert states == {first.id: {"c1": "ok"}, again.id: {"c1-2": "ok"}}


async def test_tool_call_that_never_started_has_no_state(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        session = await server.store.create()
        await session.append(assistant(tool_call("c1", "look", {"place": "shed"})))
        assert await call_states(session, await session.path(kind="message")) == {}
