"""A durable run of Pydantic AI with a tool; the process dies (SIGKILL) at a commit."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import perdure
from perdure.adapters.pydantic_ai import DurableRun, PerdureDurability
from tests.crash.children.invoker import dying
from tests.fakes.deaths import run_in_fork

TOOLS = 2


def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    """Call both tools in one message, then answer with their results."""
    results = [part for part in messages[-1].parts if part.part_kind == "tool-return"]
    if not results:
        calls = [ToolCallPart(name, {"text": name}, tool_call_id=f"call-{name}") for name in "ab"]
        return ModelResponse(parts=calls)
    return ModelResponse(parts=[TextPart(" ".join(str(part.content) for part in results))])


def agent_of(folder: Path) -> Agent[None, str]:
    """Return an agent whose tools record their runs, and whose model records its calls."""

    def asked(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        with (folder / "model").open("a") as file:
            file.write("x")
        return answer(messages, info)

    agent = Agent(FunctionModel(asked), name="helper", capabilities=[PerdureDurability()])

    @agent.tool_plain
    def a(text: str) -> str:
        with (folder / "a").open("a") as file:
            file.write("x")
        return text

    @agent.tool_plain(metadata={"perdure": {"on_unknown": "retry"}})
    def b(text: str) -> str:
        with (folder / "b").open("a") as file:
            file.write("x")
        return text

    return agent


async def run(folder: Path, dies_at: int) -> str:
    """Run to the end; return the answer."""
    async with perdure.open(f"sqlite:///{folder / 's.db'}", durability="normal") as store:
        dying(store, dies_at)
        async with DurableRun("job", store):
            return (await agent_of(folder).run("Go")).output


def run_and_die(folder: str, commits: int) -> None:
    """Run to the end in ``folder/0``, then once for each commit N.

    The run in ``folder/N`` is killed at commit N. Each run is a fork of this process, which has
    loaded the framework. Prints how each run ended.
    """
    for dies_at in range(commits + 1):
        place = Path(folder) / str(dies_at)
        run_in_fork(place, partial(run, place, dies_at))
