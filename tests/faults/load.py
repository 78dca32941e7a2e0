"""A program that always has turns in flight, and records what the store acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import msgspec

import perdure
from perdure import Chat, Runtime, Store
from perdure.errors import PerdureError, StoreUnavailable
from perdure.session.codec import body_of
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnRequested
from tests.fakes.worker_program import HELPER

SENDERS = 12
TURNS = 6
TOOL_S = (0.1, 1.2)


class Sent(msgspec.Struct):
    """A message.

    `request` is set when the store acknowledges the message, `reply` when the reply arrives.
    """

    session: StreamId
    text: str
    tool: str
    request: int | None = None
    has_reply: bool = False
    error: str | None = None


class Load:
    """Sends messages, one after the other in each of `SENDERS` sessions, until it is closed."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._chance = random.Random(seed)
        self._runtime = Runtime(store, agents=[HELPER], runner="workers")
        self._is_open = True
        self.sent: list[Sent] = []

    async def run(self) -> None:
        """Send until `close` is called; return after the last replies have arrived."""
        async with self._runtime:
            await asyncio.gather(*(self._send(number) for number in range(SENDERS)))

    def close(self) -> None:
        """Send no more."""
        self._is_open = False

    async def _send(self, number: int) -> None:
        count = 0
        while self._is_open:
            try:
                chat = await self._runtime.start(HELPER)
                for _ in range(TURNS):
                    if not self._is_open:
                        break
                    count += 1
                    await self._turn(chat, f"{number}-{count}")
            except StoreUnavailable:  # the next session begins when the server is back
                await asyncio.sleep(0.1)

    async def _turn(self, chat: Chat, text: str) -> None:
        tool = self._chance.choice(("wait", "once"))
        arguments = {"text": text, "seconds": round(self._chance.uniform(*TOOL_S), 2)}
        sent = Sent(chat.id, text, tool)
        self.sent.append(sent)
        turn = chat.send(f"/tool {tool} {msgspec.json.encode(arguments).decode()}")
        acknowledging = asyncio.ensure_future(self._acknowledged(sent))
        try:
            reply = await turn
            sent.has_reply = reply.end == "stop"
        except StoreUnavailable:
            raise
        except PerdureError as error:
            sent.error = f"{error.code}: {error}"
        finally:
            if turn.is_running:
                await turn.stop()
            acknowledging.cancel()
            with suppress(asyncio.CancelledError, StoreUnavailable):
                await acknowledging

    async def _acknowledged(self, sent: Sent) -> None:
        """Wait until the request can be read from the primary and from a replica, if any."""
        while sent.request is None:
            with suppress(StoreUnavailable):
                sent.request = await request_of(self._store, sent)
            await asyncio.sleep(0.1)


async def request_of(store: Store, sent: Sent) -> int | None:
    """Return the seq of the message's request in the log; None if it is missing."""
    kind = TurnRequested.kind
    for entry in await store.backend.entries(sent.session, kind=kind):
        body = body_of(entry)
        assert isinstance(body, TurnRequested)
        if f'"{sent.text}"' in body.message.text:
            return entry.seq
    return None


@asynccontextmanager
async def load(address: str, seed: int) -> AsyncGenerator[Load]:
    """Yield a running load; at the end, wait for its last replies."""
    async with perdure.open(address) as store:
        made = Load(store, seed)
        running = asyncio.ensure_future(made.run())
        try:
            yield made
            made.close()
            await running
        finally:
            running.cancel()
            with suppress(asyncio.CancelledError, PerdureError):
                await running
