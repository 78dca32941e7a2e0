"""A socket that follows a flow, with a client that reads slowly or requests too much."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.apps.server.access.caller import Caller
from perdure.apps.server.access.tokens import Principal
from perdure.apps.server.flows.socket import FlowSocket
from perdure.client.flows.flow import Flow
from perdure.events.bus import CAPACITY
from perdure.events.types import LiveEvent
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.ledger import ModelCalled
from perdure.stores.protocol import Commit, Write
from tests.fakes.flow_stage import FlowStage, ends
from tests.unit.apps.server.flows.test_feeds import ALONE, START
from tests.unit.apps.server.flows.test_runs import runs_of


class Left(Exception):
    """Raised if the client has left."""


class Line:
    """A socket in memory; while `is_open` is unset, it delays replies like a slow client."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[str | None] = asyncio.Queue()
        self.got: list[dict[str, Any]] = []
        self.is_open = asyncio.Event()
        self.is_open.set()

    async def receive_text(self) -> str:
        """Return the next message; raise Left after the last."""
        data = await self.asked.get()
        if data is None:
            raise Left
        return data

    async def send_text(self, data: str) -> None:
        """Accept a message when the client reads."""
        await self.is_open.wait()
        self.got.append(msgspec.json.decode(data))

    async def until(self, type_: str) -> dict[str, Any]:
        """Wait for a message of `type_`."""
        async with asyncio.timeout(60):
            while True:
                for message in self.got:
                    if message["type"] == type_:
                        return message
                await asyncio.sleep(0.005)


async def test_slow_client_gets_the_whole_answer_in_one_message(tmp_path: Path) -> None:
    stage = FlowStage(tmp_path, ends(START, "forward-pass-closed"))
    runs = runs_of(stage)
    flow = await runs.flows.start(ALONE, workspace=tmp_path)
    role = StreamId(await _ran(runs, flow))
    line = Line()
    principal = Principal("t", "admin")
    serving = asyncio.create_task(FlowSocket(line, Caller(principal, stage.store), runs).serve())
    line.asked.put_nowait(msgspec.json.encode({"type": "open_flow", "flowId": flow.id}).decode())
    await line.until("flow_state")
    called = (new_side(ModelCalled(1, "m")),)
    await stage.store.backend.commit(Commit(writes=(Write(stream=role, entries=called),), at=1))
    of = (await stage.store.backend.state(role)).head
    await line.until("request_sent")
    line.is_open.clear()
    pieces = [f"{number} " for number in range(3 * CAPACITY)]
    for n, piece in enumerate(pieces, 1):
        stage.store.bus.publish(LiveEvent(role, of, n, "agent:token", 1, piece))
        if n % 100 == 0:
            await asyncio.sleep(0)
    line.is_open.set()
    whole = "".join(pieces)
    async with asyncio.timeout(60):
        while not any(message.get("text") == whole for message in line.got):  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.005)
    line.asked.put_nowait(None)
    with pytest.raises(Left):
        await serving
    await runs.close()


async def _ran(runs: Any, flow: Flow) -> str:
    """Run `flow` to its first wait; return the session of its role."""
    await runs.ensure(flow.id)
    async with asyncio.timeout(60):
        while (await flow.state()).run.status == "running":  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.01)
    return next(iter((await flow.state()).sessions.values()))
