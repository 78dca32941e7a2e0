"""A turn as its caller sees it when things go wrong."""

from __future__ import annotations

import asyncio
from operator import attrgetter

import pytest

from perdure.client.agents.turn import Turn
from perdure.client.watch import Watch
from perdure.engine.turns.session_turns import Signals
from perdure.engine.turns.state import TurnState
from perdure.errors import LeaseHeld, StoreUnavailable, TurnSuspended
from perdure.session.ids import StreamId
from tests.fakes.chats import Stage, calls, says


def nothing_to_watch(after: int) -> Watch:
    raise AssertionError(f"nobody watches after {after}")


async def test_start_error_of_turn_is_raised_to_every_awaiter() -> None:
    async def work(signals: Signals) -> TurnState:
        raise LeaseHeld("s", "another", 0)

    turn = Turn(work, nothing_to_watch)
    with pytest.raises(LeaseHeld):
        await turn
    with pytest.raises(LeaseHeld):
        await turn.started()
    with pytest.raises(LeaseHeld):
        [event async for event in turn]
    assert not turn.is_running


async def test_fault_in_mid_turn_ends_the_iteration() -> None:
    stage = Stage(says(calls("break_the_store")))

    async def break_the_store() -> str:
        await stage.memory.close()
        return "closed"

    chat = await stage.chat([break_the_store])
    turn = chat.send("go")
    with pytest.raises(StoreUnavailable):
        [event async for event in turn]


async def test_stopped_turn_is_over_for_this_process_only() -> None:
    entered = asyncio.Event()

    async def wait() -> str:
        entered.set()
        await asyncio.Event().wait()
        return "never"

    stage = Stage(says(calls("wait")))
    chat = await stage.chat([wait])
    turn = chat.send("go")
    await entered.wait()
    await turn.stop()
    assert not turn.is_running
    assert (await stage.memory.state(StreamId("s"))).open_turn is not None
    with pytest.raises(TurnSuspended):
        await turn


async def test_field_of_the_reply_asked_of_the_turn_says_where_it_is() -> None:
    turn = (await Stage(says("Hello")).chat()).send("hi")
    with pytest.raises(AttributeError, match=r"its reply has: \(await turn\)\.text"):
        attrgetter("text")(turn)
    with pytest.raises(AttributeError, match=r"no attribute 'txet'$"):
        attrgetter("txet")(turn)
    assert (await turn).text == "Hello"
