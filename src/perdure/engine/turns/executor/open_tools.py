"""The tools that a turn runs now, side by side where several are open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from perdure.engine.turns.effects import RunTool
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.executor.tool_call import tool_outcome
from perdure.engine.turns.inputs import ToolReturned
from perdure.engine.turns.state import OpenTool


class OpenTools:
    """Runs the open tools of one turn of `agent`; `is_aborted` as in `tool_outcome`."""

    def __init__(
        self, environment: Environment, agent: str, is_aborted: Callable[[], bool]
    ) -> None:
        self._environment = environment
        self._agent = agent
        self._is_aborted = is_aborted
        self._tasks: dict[int, asyncio.Task[ToolReturned]] = {}

    def run(self, effect: RunTool) -> Coroutine[Any, Any, ToolReturned]:
        """Return the outcome of the effect's tool; the tools beside it run on until asked for."""
        if effect.beside or effect.tool.seq in self._tasks:
            return self._side_by_side(effect)
        return self._outcome(effect.tool)

    async def stop(self) -> None:
        """Stop the tools that still run, and wait until they have stopped."""
        stopped, self._tasks = tuple(self._tasks.values()), {}
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.gather(*stopped, return_exceptions=True)

    async def _side_by_side(self, effect: RunTool) -> ToolReturned:
        for tool in (effect.tool, *effect.beside):
            if tool.seq not in self._tasks:
                self._tasks[tool.seq] = asyncio.ensure_future(self._outcome(tool))
        return await self._tasks.pop(effect.tool.seq)

    def _outcome(self, tool: OpenTool) -> Coroutine[Any, Any, ToolReturned]:
        return tool_outcome(self._environment, tool, self._agent, self._is_aborted)
