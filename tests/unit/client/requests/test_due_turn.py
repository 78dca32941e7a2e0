"""Turns of this process that begin later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import perdure
from perdure import Agent, Runtime, Selection, Store
from perdure.client.agents.runners import answering
from perdure.errors import InvalidTransition, WrongArgument
from tests.fakes.clock import ManualClock

DUE = datetime(2100, 1, 1, tzinfo=UTC)
AGENT = Agent("helper", model="scripted:echo")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with perdure.open("memory:") as opened:
        yield opened


@pytest.fixture
async def still(clock: ManualClock) -> AsyncIterator[Store]:
    """A store in which nothing is due before the test moves its clock."""
    async with perdure.open("memory:", clock=clock) as opened:
        yield opened


def soon(store: Store, ms: int) -> int:
    return store.outside.clock.now_ms() + ms


async def test_scheduled_message_is_sent_when_due(still: Store, clock: ManualClock) -> None:
    async with Runtime(still, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        due_at = soon(still, 1_500)
        later = chat.send("later", at=due_at)
        await later.stored()
        assert later.is_scheduled
        assert chat.status == "idle"
        assert [each.due_at for each in await still.schedule.list(chat.id)] == [due_at]
        assert "now" in (await chat.send("now")).text
        clock.advance(1.5)
        assert "later" in (await later).text
        assert not later.is_scheduled
        assert chat.turn is later
        assert await still.schedule.list() == []
        starts = [entry.at async for entry in chat.session.entries(kind="turn_started")]
    assert len(starts) == 2
    assert starts[0] < due_at <= starts[1]


async def test_message_due_during_a_turn_is_sent_after_the_turn(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        claim = runtime.host.claim(chat.id)
        lease = await store.backend.acquire_lease(chat.id, "another process", 60_000)
        later = chat.send("later", at=soon(store, 0))
        await later.stored()
        await asyncio.sleep(0.1)
        assert later.is_scheduled
        await claim.store.release_lease(lease)
        assert "later" in (await later).text


async def test_message_that_cannot_be_scheduled_is_rejected_immediately(store: Store) -> None:
    async with Runtime(store, agents=[AGENT]) as runtime:
        chat = await runtime.start(AGENT)
        with pytest.raises(WrongArgument, match="cannot change the workspace"):
            chat.send("later", at=DUE, selection=Selection("a.py", 1, 2), active_file="a.py")
        assert chat.status == "idle"
        await chat.cancel()
        with pytest.raises(InvalidTransition):
            chat.send("later", at=DUE)


async def test_scheduled_turn_returns_an_answer_made_by_another_runtime(still: Store) -> None:
    async with (
        Runtime(still, agents=[AGENT]) as runtime,
        Runtime(still, agents=[AGENT], owner="other") as other,
    ):
        chat = await runtime.start(AGENT)
        later = chat.send("later", at=soon(still, 300))
        await later.stored()
        (waiting,) = await still.schedule.list()
        there = await other.resume(chat.id)
        with answering(chat.id, int(waiting.id.rpartition("/")[2])):
            first = there.send("later")
        assert "later" in (await first).text
        assert "later" in (await later).text
        starts = [entry async for entry in chat.session.entries(kind="turn_started")]
    assert len(starts) == 1
