"""A run of the SDK with a tool on a stored session; the process dies (SIGKILL) at a commit."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner, Session, SQLiteSession, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession
from tests.crash.children.invoker import dying
from tests.fakes.deaths import run_in_fork

TURNS = 3
KINDS = ("perdure", "sqlite")
"""Kinds of sessions: perdure's and the SDK's own."""


def run_and_die(folder: str, kills: list[int]) -> None:
    """Run each kind of session to the end in folder ``0``, then once for each N in `kills`.

    The run in folder N is killed at commit N. Each run is a fork of this process, which has loaded
    the SDK. Prints how each run ended.
    """
    for kind in KINDS:
        for dies_at in (0, *kills):
            place = Path(folder) / kind / str(dies_at)
            run_in_fork(place, partial(_run, kind, place, dies_at))


@asynccontextmanager
async def session_in(kind: str, folder: Path, dies_at: int) -> AsyncGenerator[Session]:
    """Open the session `kind`, which kills this process after the commit number `dies_at`."""
    if kind == "sqlite":
        if dies_at:
            _dying_sqlite(dies_at)
        own = SQLiteSession("s", folder / "s.db")
        yield own
        own.close()
        return
    async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
        dying(store, dies_at)
        yield PerdureSession("s", store)


def _dying_sqlite(dies_at: int) -> None:
    connect, counted = sqlite3.connect, 0

    class Dying(sqlite3.Connection):
        def commit(self) -> None:
            nonlocal counted
            counted += self.in_transaction
            super().commit()
            if counted == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def connecting(*arguments: Any, **options: Any) -> sqlite3.Connection:
        return connect(*arguments, **options, factory=Dying)

    sqlite3.connect = connecting


async def _run(kind: str, folder: Path, dies_at: int) -> None:
    ran = folder / "ran"

    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        with ran.open("a") as file:
            file.write(f"{a}\n")
        return a + b

    async with session_in(kind, folder, dies_at) as session:
        for turn in range(TURNS):
            call = function_call("add", {"a": turn, "b": 1}, call_id=f"call-{turn}")
            model = ScriptedModel([[call], [assistant_message(f"sum {turn + 1}")]])
            agent = Agent(name="adder", model=model, tools=[add])
            config = RunConfig(tracing_disabled=True)
            await Runner.run(agent, f"question {turn}", session=session, run_config=config)
            await asyncio.to_thread((folder / "done").write_text, str(turn + 1))
