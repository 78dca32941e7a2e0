"""A consumer of events, built from the guides: connections break and lose data, processes die."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

import perdure
from perdure.events.projection import events_of
from tests.acceptance.services.conftest import CHILDREN, PATIENCE_S, Desk, until
from tests.fakes.model_server import streaming
from tests.fakes.openai_server import events as openai_events
from tests.fakes.plans import Plan

TURNS = 3
SPEECH = " ".join(f"word{number}" for number in range(100))
LOST_EVERY, CUT_EVERY = 7, 13
"""Every seventh piece of data is lost; the connection is cut after every thirteenth piece."""


class BadLine:
    """A proxy in front of the desk, which drops pieces of the desk's data and cuts connections."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.pieces = 0
        self._open: set[asyncio.Task[None]] = set()

    def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.create_task(self._passed_on(reader, writer))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def close(self) -> None:
        """Cut every connection."""
        for task in self._open:
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    async def _passed_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._exchange(reader, writer)
        finally:
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, to = await asyncio.open_connection("127.0.0.1", self._desk.port)
        try:
            to.write(await reader.readuntil(b"\r\n\r\n"))
            writer.write(await there.readuntil(b"\r\n\r\n"))
            while size := await there.readuntil(b"\r\n"):
                rest = await there.readexactly(int(size, 16) + 2)
                self.pieces += 1
                if self.pieces % LOST_EVERY:
                    writer.write(size + rest)
                    await writer.drain()
                if self.pieces % CUT_EVERY == 0:
                    return
        finally:
            to.transport.abort()


@asynccontextmanager
async def bad_line(desk: Desk) -> AsyncGenerator[tuple[BadLine, int]]:
    """Run a proxy during the block; yield the proxy and its port."""
    line = BadLine(desk)
    server = await asyncio.start_server(line.pass_on, "127.0.0.1", 0)
    async with server:
        try:
            yield line, server.sockets[0].getsockname()[1]
        finally:
            await line.close()


@pytest.mark.all_only
async def test_event_consumer_gets_each_event_once_despite_disconnects_and_kills(
    desk: Desk,
) -> None:
    desk.openai.will(streaming(openai_events(Plan(text=SPEECH)), pause_s=0.005))
    seen = desk.folder / "seen.jsonl"
    async with bad_line(desk) as (line, port):
        url = f"http://127.0.0.1:{port}/tickets/ana-1/events"
        consume = (sys.executable, CHILDREN / "event_consumer.py", url, seen, str(TURNS))
        await desk.say("ana-1", "Tell me all.")
        first = await desk.run(*consume)
        await until(lambda: seen.exists() and seen.read_text().count("\n") > 3)
        first.kill()
        await first.communicate()
        second = await desk.run(*consume)
        await desk.answer("ana-1", SPEECH)
        await desk.say("ana-1", "And again.")
        await until(lambda: len(desk.openai.requests) > 1)
        await desk.kill()  # in the middle of the answer: the next process calls the model again
        await desk.open()
        await until(lambda: seen.read_text().count("session:turn_completed") > 1)
        await desk.say("ana-1", "Once more.")
        _, err = await asyncio.wait_for(second.communicate(), PATIENCE_S)
        assert second.returncode == 0, err
    assert line.pieces > 4 * CUT_EVERY  # so there were cuts, and more losses
    told = [json.loads(text) for text in seen.read_text(encoding="utf-8").splitlines()]
    await desk.close()
    async with perdure.open(desk.address) as store:
        session = await store.open("ana-1")
        whole = [entry async for entry in session.entries()]
        expected = [perdure.wire(event) for entry in whole for event in events_of(entry)]
    assert told == json.loads(json.dumps(expected))
    said = [each for each in told if each["type"] == "agent:message" and each["role"] != "user"]
    assert [each["parts"] for each in said] == [[{"type": "text", "text": SPEECH}]] * TURNS
