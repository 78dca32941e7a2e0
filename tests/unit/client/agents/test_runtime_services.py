"""State that all sessions of a runtime share."""

from __future__ import annotations

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime_services import Host
from perdure.client.agents.turn_config import InFlow
from perdure.client.conversation.workspace import Workspace
from perdure.engine.turns.session_turns import Signals
from perdure.errors import AgentNotFound
from perdure.session.ids import StreamId
from perdure.session.messages import ToolCallPart, user
from perdure.tools.approval import Bound, Ruling
from tests.fakes.chats import MODEL, Stage, calls, says


def test_error_for_an_unknown_agent_id_lists_known_ids() -> None:
    owner = Agent("owner", model="scripted:echo")
    host = Host(Stage().store, [owner])
    assert host.agent("owner") is owner
    with pytest.raises(AgentNotFound, match="there are: owner"):
        host.agent("developer")


async def test_turn_of_a_flow_runs_without_a_chat_handle() -> None:
    runs: list[str] = []

    async def note() -> str:
        """Write it down."""
        runs.append("note")
        return "noted"

    def refuse(call: ToolCallPart, granted: frozenset[str], bound: Bound | None) -> Ruling:
        return Ruling("refuse", "not here", error_code="denied")

    stage = Stage(says(calls("note")), says("as you like"))
    agent = Agent("helper", model=MODEL, tools=[note])
    session = await stage.store.create(id="s")
    host = Host(stage.store, models=stage.models, owner="here")
    place = Workspace()
    running = host.running(
        StreamId(session.id), agent, place, prompt="Be brief.", flow=InFlow(refuse)
    )
    state = await running.new_turn(user("go"), (), Signals())
    assert state.answer is not None
    assert state.answer.text == "as you like"
    assert runs == []
