"""Live events of a call are flushed to other processes before its outcome is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence

import pytest

from perdure.client.agents.agent import Agent
from perdure.client.agents.runtime import Runtime
from perdure.events.bus import LiveBus
from perdure.models.protocol import Delta, ModelInfo, ModelRequest, StreamEnd, TextDelta
from perdure.session.ids import StreamId
from perdure.stores.cluster import live_sender
from perdure.stores.cluster.live_relay import LiveRelay
from perdure.stores.cluster.live_table import LiveRow
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.live_wire import LiveWire, WiredTable

S = StreamId("s")


class SlowTable(WiredTable):
    """A table whose writes wait until `leave` is set."""

    def __init__(self, wire: LiveWire, handle: str) -> None:
        super().__init__(wire, handle)
        self.entered = asyncio.Event()
        self.leave = asyncio.Event()

    async def write(
        self, rows: Sequence[LiveRow], readers: Mapping[str, Sequence[StreamId]]
    ) -> frozenset[tuple[StreamId, int]]:
        self.entered.set()
        await self.leave.wait()
        return await super().write(rows, readers)


class Halves:
    """A model that sends the two halves of an emoji in separate chunks."""

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        for text in ("a", "\ud83d", "\ude00", "z"):
            yield TextDelta(text)
        yield StreamEnd("stop")


class Endless:
    """A model whose answer begins and never ends."""

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        yield TextDelta("a")
        await asyncio.Event().wait()


def watched(stage: Stage) -> SlowTable:
    """Let another process watch the bus of `stage`; return the table that the bus writes to."""
    wire = LiveWire(S)
    reader = WiredTable(wire, "reader")
    LiveRelay(LiveBus(), reader)
    table = SlowTable(wire, "worker")
    stage.store.bus.relay = LiveRelay(stage.store.bus, table)
    wire.watching[S, "reader"] = None
    table.listen()
    return table


async def test_answer_is_stored_when_turn_is_suspended_during_flush() -> None:
    stage = Stage(says("paid for"))
    table = watched(stage)
    chat = await stage.chat()
    await asyncio.sleep(0)
    chat.send("go")
    await table.entered.wait()
    suspending = asyncio.ensure_future(chat.suspend())
    await asyncio.sleep(0)
    table.leave.set()
    await suspending
    assert "model_finished" in await stage.kinds()


async def test_turn_waits_only_a_limited_time_for_the_flush(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_sender, "SETTLE_S", 0.01)
    stage = Stage(says("hello"))
    table = watched(stage)
    chat = await stage.chat()
    await asyncio.sleep(0)
    assert (await chat.send("go")).text == "hello"
    assert table.entered.is_set()
    table.leave.set()


async def test_failed_flush_does_not_end_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(says("hello"))
    table = watched(stage)

    async def fail(*_: object) -> frozenset[tuple[StreamId, int]]:
        table.entered.set()
        raise ValueError("not a StoreError")

    monkeypatch.setattr(table, "write", fail)
    chat = await stage.chat()
    await asyncio.sleep(0)
    assert (await chat.send("go")).text == "hello"
    assert table.entered.is_set()


async def test_emoji_split_into_two_deltas_reaches_watchers_whole() -> None:
    stage = Stage()
    table = watched(stage)
    table.leave.set()
    agent = Agent("helper", model=MODEL)
    shown: list[str] = []
    stage.store.bus.observe(lambda event: shown.append(event.text))
    chat = await Runtime(stage.store, [agent], models=Halves()).start(agent, id="s")
    await asyncio.sleep(0)
    assert (await chat.send("go")).text == "a\U0001f600z"
    assert table.calls["write"] > 0
    assert shown == ["a", "\U0001f600", "z"]


async def test_suspended_turn_leaves_no_open_call() -> None:
    stage = Stage()
    agent = Agent("helper", model=MODEL)
    shown = asyncio.Event()
    stage.store.bus.observe(lambda event: shown.set())
    chat = await Runtime(stage.store, [agent], models=Endless()).start(agent, id="s")
    chat.send("go")
    await shown.wait()
    assert [each.partial.text for each in stage.store.bus.snapshots()] == ["a"]
    await chat.suspend()
    assert stage.store.bus.snapshots() == []
