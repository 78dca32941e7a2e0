"""A run of the SDK with a tool on a stored session; the process dies (SIGKILL) at a commit."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession
from tests.crash.children.invoker import dying

TURNS = 3


def run_and_die(folder: str, commits: int) -> None:
    """Run once to the end in ``folder/0``, and once for each commit in the folder of its number.

    Each run is a fork of this process, which has loaded the SDK. Prints how each one ended.
    """
    for dies_at in range(commits + 1):
        place = Path(folder) / str(dies_at)
        place.mkdir()
        child = os.fork()
        if child == 0:
            asyncio.run(_run(place, dies_at))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


async def _run(folder: Path, dies_at: int) -> None:
    @function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
        dying(store, dies_at)
        session = PerdureSession("s", store)
        for turn in range(TURNS):
            call = function_call("add", {"a": turn, "b": 1}, call_id=f"call-{turn}")
            model = ScriptedModel([[call], [assistant_message(f"sum {turn + 1}")]])
            agent = Agent(name="adder", model=model, tools=[add])
            config = RunConfig(tracing_disabled=True)
            await Runner.run(agent, f"question {turn}", session=session, run_config=config)
            await asyncio.to_thread((folder / "done").write_text, str(turn + 1))
