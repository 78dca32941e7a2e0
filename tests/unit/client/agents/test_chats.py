"""Chats that are created from a session and the agent that is in force for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.conversation.workspace import Workspace
from perdure.tools.decorator import tool
from tests.fakes.players import Theatre


async def test_resumed_session_has_the_timeouts_of_the_current_agent() -> None:
    theatre = Theatre()
    agent = Agent("a", model="p:main", first_byte_timeout_s=5.0)
    chat = await theatre.runtime(agent).start("a")
    slow = Agent("a", model="p:main", first_byte_timeout_s=300.0, stream_idle_timeout_s=30.0)
    resumed = await theatre.runtime(slow).resume(chat.id)
    await resumed.send("Hi")
    (request,) = theatre.players.requests
    assert (request.first_byte_timeout_s, request.stream_idle_timeout_s) == (300.0, 30.0)
    alone = await theatre.runtime().resume(chat.id)
    assert alone.agent.first_byte_timeout_s == 5.0


@tool
def book(hotel: str) -> str:
    """Book a hotel."""
    return hotel


@tool(name="book")
def book_nights(hotel: str, nights: int) -> str:
    """Book a hotel."""
    return f"{hotel} {nights}"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records]


async def test_resuming_with_a_changed_agent_warns_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    theatre = Theatre()
    agent = Agent("a", model="p:main", instructions="Help.", tools=[book])
    first = theatre.runtime(agent)
    sessions = [(await first.start("a")).id for _ in range(2)]
    await first.resume(sessions[0])
    assert warnings(caplog) == []
    newer = Agent("a", model="p:other", instructions="Help more.", tools=[book_nights])
    runtime = theatre.runtime(newer)
    chats = [await runtime.resume(each) for each in sessions]
    assert [chat.agent.registry.names for chat in chats] == [(), ()]
    assert [(chat.agent.instructions, chat.agent.model) for chat in chats] == [
        ("Help.", "p:main")
    ] * 2
    (told,) = warnings(caplog)
    assert told == (
        f"session {sessions[0]}: agent 'a' has changed since it began: it cannot call book "
        "(missing now, or with other parameters); keeps its instructions; keeps its model"
    )
    await runtime.grant(sessions[0], "a", by="ana")
    granted = await runtime.resume(sessions[0])
    assert granted.agent.registry.get("book").parameters == book_nights.parameters


async def test_resume_warns_about_a_missing_agent_or_folder(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    theatre = Theatre()
    folder = tmp_path / "work"
    folder.mkdir()
    agent = Agent("a", model="p:main", tools=[book])
    chat = await theatre.runtime(agent).start("a", workspace=Workspace(folder))
    await theatre.runtime().resume(chat.id)
    assert warnings(caplog) == [
        f"session {chat.id}: this runtime has no agent 'a', so book cannot be called"
    ]
    caplog.clear()
    folder.rmdir()
    await theatre.runtime(agent).resume(chat.id)
    (told,) = warnings(caplog)
    assert told.endswith("work' does not exist: resume it with a workspace to move it")
    caplog.clear()
    await theatre.runtime(agent).resume(chat.id, workspace=Workspace(tmp_path))
    assert warnings(caplog) == []
