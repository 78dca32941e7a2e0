"""A run of the SDK that pauses at an approval, and its continuation, in processes that are killed.

asking.py STEP ADDRESS FOLDER: STEP is ask or resume; prints "saved" or the answer, then waits"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[5]))

from agents import Agent, RunConfig, Runner, RunResult, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call

import perdure
from perdure.adapters.openai_agents import PerdureSession
from tests.crash.children.invoker import dying

CONFIG = RunConfig(tracing_disabled=True)
TEXTS = ("report", "bill")
"""Arguments of the two calls."""


def agent_in(folder: Path, *script: Any) -> Agent[Any]:
    """Return an agent whose tool writes each sent text to a file."""

    @function_tool(needs_approval=True)
    def send(text: str) -> str:
        """Send a text."""
        with (folder / "sent").open("a") as file:
            file.write(f"{text}\n")
        return f"sent {text}"

    return Agent(name="sender", model=ScriptedModel([*script]), tools=[send])


def asking(folder: Path, *texts: str) -> Agent[Any]:
    """Return an agent that calls its tool with each of `texts`."""
    calls = [
        function_call("send", {"text": text}, call_id=f"c{number}")
        for number, text in enumerate(texts)
    ]
    return agent_in(folder, calls)


def answering(folder: Path) -> Agent[Any]:
    """Return the agent of `asking`, but with a model that only answers and calls no tool."""
    return agent_in(folder, [assistant_message("All is done.")])


async def pause(session: PerdureSession, agent: Agent[Any]) -> None:
    """Run until the calls need approval; store the state."""
    result = await Runner.run(agent, "Send them", session=session, run_config=CONFIG)
    await session.save_state(result.to_state())


async def resume(session: PerdureSession, agent: Agent[Any]) -> RunResult | None:
    """Resume the stored state; store it again if the run still waits."""
    state = await session.load_state(agent)
    if state is None:
        return None
    result = await Runner.run(agent, state, session=session, run_config=CONFIG)
    await session.save_state(result.to_state() if result.interruptions else None)
    return result


def pause_and_die(folder: str, commits: int) -> None:
    """Pause several runs, each in a fork: the first dies after commit 1, the second after 2, …"""
    for dies_at in range(1, commits + 1):
        place = Path(folder) / str(dies_at)
        place.mkdir()
        child = os.fork()
        if child == 0:
            asyncio.run(_pause_at(place, dies_at))
            os._exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()


async def _pause_at(folder: Path, dies_at: int) -> None:
    async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
        dying(store, dies_at)
        await pause(PerdureSession("s", store), asking(folder, *TEXTS))


async def main(step: str, address: str, folder: Path) -> None:
    async with perdure.open(address) as store:
        session = PerdureSession("s", store)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        if step == "ask":
            await pause(session, asking(folder, *TEXTS))
            said = "saved"
        else:
            result = await resume(session, answering(folder))
            said = "nothing" if result is None else str(result.final_output)
        sys.stdout.write(f"{said}\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
