"""A run of the ADK with a tool on a stored session; the process dies (SIGKILL) at a commit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools import ToolContext
from google.genai import types

import perdure
from perdure.adapters.google_adk import PerdureSessionService
from tests.crash.children.invoker import dying
from tests.fakes.deaths import run_in_fork

TURNS = 3
NAMES: dict[str, Any] = {"app_name": "app", "user_id": "ana", "session_id": "s"}
KINDS = ("perdure", "sqlite")
"""Kinds of services: perdure's and the ADK's own."""


class Model(BaseLlm):
    """A model that calls a tool once, then answers."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        last = llm_request.contents[-1].parts or []
        if any(part.function_response for part in last):
            part = types.Part(text="counted")
        else:
            part = types.Part(function_call=types.FunctionCall(name="count", args={}))
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def run_and_die(folder: str, kills: list[int]) -> None:
    """Run each kind of service to the end in folder ``0``, then once for each N in `kills`.

    The run in folder N is killed at commit N. Each run is a fork of this process, which has loaded
    the ADK. Prints how each run ended.
    """
    loaded = Path(folder) / "memory"
    loaded.mkdir()
    asyncio.run(_run("memory", loaded, 0))  # the ADK loads most of itself in its first run
    for kind in KINDS:
        for dies_at in (0, *kills):
            place = Path(folder) / kind / str(dies_at)
            run_in_fork(place, partial(_run, kind, place, dies_at))


@asynccontextmanager
async def service_in(kind: str, folder: Path, dies_at: int) -> AsyncGenerator[BaseSessionService]:
    """Open the service `kind`, which kills this process after the commit number `dies_at`."""
    if kind == "memory":
        yield InMemorySessionService()
        return
    if kind == "sqlite":
        _dying_sqlite(dies_at)
        yield SqliteSessionService(str(folder / "s.db"))
        return
    async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
        dying(store, dies_at)
        yield PerdureSessionService(store)


def _dying_sqlite(dies_at: int) -> None:
    commit, counted = aiosqlite.Connection.commit, 0

    async def counting(self: aiosqlite.Connection) -> None:
        nonlocal counted
        counted += 1
        await commit(self)
        if counted == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)

    aiosqlite.Connection.commit = counting


async def _run(kind: str, folder: Path, dies_at: int) -> None:
    ran = folder / "ran"

    def count(tool_context: ToolContext) -> dict[str, int]:
        """Count the calls in the state of the session, the user and the app."""
        number = tool_context.state.get("n", 0) + 1
        for key in ("n", "user:n", "app:n"):
            tool_context.state[key] = number
        with ran.open("a") as file:
            file.write(f"{number}\n")
        return {"number": number}

    async with service_in(kind, folder, dies_at) as service:
        await service.create_session(**NAMES, state={"n": 0, "user:n": 0, "app:n": 0})
        agent = LlmAgent(name="counter", model=Model(model="scripted"), tools=[count])
        runner = Runner(app_name="app", agent=agent, session_service=service)
        for turn in range(TURNS):
            content = types.Content(role="user", parts=[types.Part(text=f"question {turn}")])
            async for _ in runner.run_async(user_id="ana", session_id="s", new_message=content):
                pass
            (folder / "done").write_text(str(turn + 1))
