"""A parent that invokes an agent and kills itself (SIGKILL) at one of its commits or calls."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import perdure
from perdure.client.agents.agent import Agent
from perdure.models.protocol import Delta, ModelInfo, ModelRequest
from perdure.session.messages import Usage
from tests.fakes.players import asks, words

JSON = '{"agent": "scout", "input": "look around"}'
USED = Usage(100, 10)

AGENTS = (
    Agent("lead", model="p:lead", tools=["invoke_agent"], max_cost_microcents=50_000),
    Agent("scout", model="p:scout", tools=["invoke_agent"]),
)


class Model:
    """The model of two agents: the lead invokes the scout once, and then each gives its answer."""

    def __init__(self, dies_at: int = 0) -> None:
        self.calls = 0
        self._dies_at = dies_at

    def info(self, model: str) -> ModelInfo:
        return ModelInfo(model, None)

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        return usage.total_tokens

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        self.calls += 1
        if self.calls == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        last = request.messages[-1]
        if request.model == "p:scout":
            said = words("all quiet", USED)
        elif last.role == "tool":
            said = words("so it is", USED)
        else:
            said = asks("invoke_agent", json=JSON, usage=USED)
        for step in said:
            assert not isinstance(step, Exception)
            yield step  # pyright: ignore[reportReturnType] - these answers hold deltas only


def dying(store: Any, dies_at: int) -> None:
    """Kill this process after the commit number `dies_at` of `store`."""
    commit, counted = store.backend.commit, 0

    async def counting(*arguments: Any, **options: Any) -> Any:
        nonlocal counted
        counted += 1
        done = await commit(*arguments, **options)
        if counted == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    store.backend.commit = counting


def run(file: str, counts: str, dies_at: int) -> None:
    """Run the session "s" to its end, or die at the `dies_at`-th "commit" or "call" (0: never)."""
    asyncio.run(_run(file, counts, dies_at))


async def _run(file: str, counts: str, dies_at: int) -> None:
    async with perdure.open(f"sqlite:///{file}") as store:
        if counts == "commit":
            dying(store, dies_at)
        model = Model(dies_at if counts == "call" else 0)
        async with perdure.Runtime(store, AGENTS, models=model) as runtime:
            chat = await runtime.start("lead", id="s")
            await chat.send("go")
