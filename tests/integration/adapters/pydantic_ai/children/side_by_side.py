"""A durable run whose model makes three tool calls in one message; the process dies at a commit."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import perdure
from perdure.adapters.pydantic_ai import DurableRun, PerdureDurability
from tests.crash.children.invoker import dying
from tests.fakes.deaths import run_in_fork

IDS = ("c0", "c1", "c2")


def results_in(messages: list[ModelMessage]) -> list[tuple[str, str]]:
    """Return each result of a tool with the id of its call."""
    parts = [part for message in messages for part in message.parts]
    return [(p.tool_call_id, str(p.content)) for p in parts if p.part_kind == "tool-return"]


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Call the tool three times in one message, then answer with the results."""
    if results := results_in(messages):
        return ModelResponse(parts=[TextPart(" ".join(map(": ".join, results)))])
    calls = [ToolCallPart("look", {"id": id}, tool_call_id=id) for id in IDS]
    return ModelResponse(parts=calls)


def agent_of(*, ends_in_reverse: bool) -> Agent[None, str]:
    """Return an agent that calls its tool; with `ends_in_reverse` the last call ends first."""
    agent = Agent(
        FunctionModel(answer), name="guide", capabilities=[PerdureDurability(on_unknown="retry")]
    )
    ended = {id: asyncio.Event() for id in IDS}

    @agent.tool_plain
    async def look(id: str) -> str:
        if ends_in_reverse and id != IDS[-1]:
            await ended[IDS[IDS.index(id) + 1]].wait()
        ended[id].set()
        return f"saw {id}"

    return agent


async def run(folder: Path, dies_at: int) -> tuple[str, list[ModelMessage]]:
    """Run the agent, or continue an earlier process's run; return the answer and the messages."""
    is_first = not (folder / "s.db").exists()  # otherwise the calls that have results do not run
    async with perdure.open(f"sqlite:///{folder / 's.db'}") as store:
        dying(store, dies_at)
        async with DurableRun("job", store):
            result = await agent_of(ends_in_reverse=is_first).run("go")
            return result.output, result.all_messages()


def run_and_die(folder: str, commits: int) -> None:
    """Run to the end in ``folder/0``, then once for each commit N.

    The run in ``folder/N`` is killed at commit N. Each run is a fork of this process, which has
    loaded the framework. Prints how each run ended.
    """
    for dies_at in range(commits + 1):
        place = Path(folder) / str(dies_at)
        run_in_fork(place, partial(run, place, dies_at))
