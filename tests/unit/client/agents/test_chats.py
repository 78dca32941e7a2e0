"""Chats made of a session and the agent that is in force in it."""

from __future__ import annotations

from perdure.client.agents.agent import Agent
from tests.fakes.players import Theatre


async def test_resumed_session_has_the_timeouts_of_todays_agent() -> None:
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
