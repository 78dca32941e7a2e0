"""A process that is killed inside a tool with policy ``ask``."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import perdure
from perdure.client.clock import SystemClock
from perdure.models.router import ModelRouter
from perdure.models.scenario_yaml import load_scenario
from perdure.models.scripted import ScriptedModel


@perdure.tool(effect="write", on_unknown="ask")
def add_line(path: str, text: str) -> str:
    """Append a line."""
    Path(path).write_text(text)
    os.kill(os.getpid(), signal.SIGKILL)
    return "unreachable"


def be_killed_in_a_tool(
    session: str, scenario: str, environment: Mapping[str, str], folder: str
) -> None:
    """Run a turn of `session` in `folder`; its model plays `scenario` and calls the tool."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    asyncio.run(_turn(session, Path(scenario)))


async def _turn(session: str, scenario: Path) -> None:
    scripted = ScriptedModel(load_scenario(scenario), clock=SystemClock())
    agent = perdure.Agent("assistant", model="scripted:acted", tools=[add_line])
    async with perdure.open() as store:
        models = ModelRouter({"scripted": scripted})
        async with perdure.Runtime(store, [agent], models=models) as runtime:
            chat = await runtime.start(agent, id=session)
            await chat.send("write")
