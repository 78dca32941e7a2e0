"""An ADK agent makes three tool calls in one message; the process can die (SIGKILL) at a commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App, ResumabilityConfig
from google.adk.models import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService
from google.genai import types
from pydantic import Field

from tests.fakes.deaths import run_in_fork
from tests.integration.adapters.google_adk.children.runner import KINDS, NAMES, service_in

IDS = ("c0", "c1", "c2")


class Model(BaseLlm):
    """A model that makes three tool calls in one message, then answers; it records its requests."""

    asked: list[list[types.Content]] = Field(default_factory=list)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        self.asked.append([each.model_copy(deep=True) for each in llm_request.contents])
        if any(part.function_response for part in llm_request.contents[-1].parts or []):
            parts = [types.Part(text="Well.")]
        else:
            calls = [types.FunctionCall(name="look", args={"id": id}, id=id) for id in IDS]
            parts = [types.Part(function_call=call) for call in calls]
        yield LlmResponse(content=types.Content(role="model", parts=parts))


def runner_on(
    service: BaseSessionService, tool: Any, *, is_resumable: bool = True
) -> tuple[Runner, Model]:
    """Return a runner of an app with `tool`, and its model."""
    model = Model(model="scripted")
    agent = LlmAgent(name="guide", model=model, tools=[tool])
    resumable = ResumabilityConfig(is_resumable=True) if is_resumable else None
    app = App(name=NAMES["app_name"], root_agent=agent, resumability_config=resumable)
    return Runner(app=app, session_service=service), model


async def ask(running: Runner, *parts: types.Part) -> None:
    """Run the agent on a message of the user."""
    said = types.Content(role="user", parts=list(parts))
    names = {"user_id": NAMES["user_id"], "session_id": NAMES["session_id"]}
    async for _ in running.run_async(**names, new_message=said):
        pass


def looking(folder: Path) -> Any:
    """Return a tool that finishes the calls of an answer in reverse order."""
    ended = {id: asyncio.Event() for id in IDS}

    async def look(id: str) -> str:
        """Look at something."""
        if id != IDS[-1]:
            await ended[IDS[IDS.index(id) + 1]].wait()
        with (folder / "ended").open("a") as file:
            file.write(f"{id}\n")
        ended[id].set()
        return f"saw {id}"

    return look


async def run(kind: str, folder: Path, dies_at: int) -> None:
    """Run the agent to its end, or die at the commit `dies_at`."""
    async with service_in(kind, folder, dies_at) as service:
        await service.create_session(**NAMES)
        running, _ = runner_on(service, looking(folder))
        await ask(running, types.Part(text="go"))


def run_and_die(folder: str, commits: int) -> None:
    """Run each kind of service to the end in folder ``0``, then once for each commit N.

    The run in folder N is killed at commit N. Each run is a fork of this process, which has loaded
    the ADK. Prints how each run ended.
    """
    loaded = Path(folder) / "memory"
    loaded.mkdir()
    asyncio.run(run("memory", loaded, 0))  # the ADK loads most of itself in its first run
    for kind in KINDS:
        for dies_at in range(commits + 1):
            place = Path(folder) / kind / str(dies_at)
            run_in_fork(place, partial(run, kind, place, dies_at))
