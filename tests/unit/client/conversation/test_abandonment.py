"""The closing of turns that no process runs any more."""

from __future__ import annotations

import json

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.conversation.abandonment import abandon_turn
from perdure.errors import LeaseHeld
from perdure.session.ids import StreamId
from tests.fakes.chats import until
from tests.fakes.players import Hold, Theatre, asks

INVOKE = asks("invoke_agent", json=json.dumps({"agent": "scout", "input": "look"}))


async def test_abandoned_turn_closes_turns_of_invoked_agents() -> None:
    hold = Hold()
    theatre = Theatre(lead=[INVOKE], scout=[[hold]])
    agents = [Agent(name, model=f"p:{name}", tools=("invoke_agent",)) for name in ("lead", "scout")]
    chat = await theatre.runtime(*agents).start("lead", id="s")
    chat.send("go")
    await until(lambda: _is_set(hold))
    with pytest.raises(LeaseHeld):
        await abandon_turn(theatre.memory, theatre.clock, StreamId("s"))
    await chat.suspend()
    assert await abandon_turn(theatre.memory, theatre.clock, StreamId("s"))
    infos = await theatre.memory.sessions(scope="all")
    states = [await theatre.memory.state(info.id) for info in infos]
    assert [state.open_turn for state in states] == [None, None]
    assert not await abandon_turn(theatre.memory, theatre.clock, StreamId("s"))


async def _is_set(hold: Hold) -> bool:
    return hold.entered.is_set()
