"""A runtime behind a real HTTP server on loopback, and clients with tokens for it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import msgspec
import uvicorn

import perdure
from perdure.models.protocol import ModelClient
from perdure.server import Role, TokenFile, TokenRecord, app
from perdure.testing import ScriptedModel
from tests.fakes.clock import ManualClock
from tests.fakes.direct import DirectClient

DESK = perdure.Agent("desk", model="scripted:desk", instructions="You answer customers.")


@dataclass
class Served:
    """A running server. `http` has a token of the role admin."""

    store: perdure.Store
    runtime: perdure.Runtime
    url: str
    tokens: TokenFile
    stack: AsyncExitStack
    application: Any
    http: httpx.AsyncClient = field(init=False)
    numbers: Iterable[int] = field(default_factory=count)

    def token(self, role: Role = "admin", **limits: Any) -> str:
        """A new token. `limits` contains additional fields of the token's record."""
        name = f"t{next(iter(self.numbers))}"
        record = TokenRecord(id=name, hash="", role=role, created_at=0)
        return self.tokens.create(msgspec.structs.replace(record, **limits), os.urandom(32))

    def direct(self, role: Role = "admin", **limits: Any) -> DirectClient:
        """Return a client with its own token that calls the application without a connection."""
        headers = {"Authorization": f"Bearer {self.token(role, **limits)}"}
        return DirectClient(self.application, headers)

    async def client(self, role: Role = "admin", **limits: Any) -> httpx.AsyncClient:
        """Return a client with its own token."""
        headers = {"Authorization": f"Bearer {self.token(role, **limits)}"}
        client = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)
        return await self.stack.enter_async_context(client)

    async def said(self, text: str, session: str | None = None) -> str:
        """Send `text`, wait for the answer, and return the id of the session."""
        turns = await self._turns(session) if session else 0
        sent = await self.http.post("/v1/messages", json={"text": text, "sessionId": session})
        sent.raise_for_status()
        session = str(sent.json()["sessionId"])
        await self.until(session, "idle", more_than=turns)
        return session

    async def _turns(self, session: str) -> int:
        shown = await self.http.get(f"/v1/sessions/{session}")
        return int(shown.json()["turns"]) if shown.status_code == 200 else 0

    async def until(self, session: str, state: str, *, more_than: int = -1) -> dict[str, Any]:
        """Wait until `session` is in `state` and has more than `more_than` turns; return it."""
        async with asyncio.timeout(60):
            while True:
                shown = (await self.http.get(f"/v1/sessions/{session}")).json()
                if shown["state"] == state and shown["turns"] > more_than:
                    return shown
                await asyncio.sleep(0.01)


class _PromptServer(uvicorn.Server):
    """A server that ends immediately when requested, instead of at its next tick."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.end = asyncio.Event()

    async def main_loop(self) -> None:
        """Serve until `end` is set."""
        await self.end.wait()


@asynccontextmanager
async def serving_app(application: Any) -> AsyncGenerator[str]:
    """Serve an ASGI application on a free port of loopback, and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # as `perdure serve`
        config = uvicorn.Config(application, log_level="error", timeout_graceful_shutdown=1)
        server = _PromptServer(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            async with asyncio.timeout(60):
                while not (server.started or task.done()):  # noqa: ASYNC110 - it sets no event
                    await asyncio.sleep(0.005)
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.end.set()
            await task


@asynccontextmanager
async def served(
    folder: Path,
    answers: Sequence[Any] = (),
    *,
    agents: Iterable[perdure.Agent] = (DESK,),
    models: ModelClient | None = None,
    address: str = "memory:",
    clock: ManualClock | None = None,
    idle_timeout_s: float | None = None,
    **options: Any,
) -> AsyncGenerator[Served]:
    """Serve the store at `address` with `agents`, whose model gives `answers`."""
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(perdure.open(address, clock=clock))
        client = models or ScriptedModel(list(answers))
        runtime = perdure.Runtime(store, agents, models=client, idle_timeout_s=idle_timeout_s)
        await stack.enter_async_context(runtime)
        tokens = TokenFile(folder / "tokens.json")
        application = app(runtime, tokens=tokens, **options)
        url = await stack.enter_async_context(serving_app(application))
        found = Served(store, runtime, url, tokens, stack, application)
        found.http = await found.client()
        yield found
