"""Run the open tool calls of a turn; several can run at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from perdure.engine.turns.config import TurnConfig
from perdure.engine.turns.effects import RunTool
from perdure.engine.turns.environment import Environment
from perdure.engine.turns.executor.tool_call import tool_outcome
from perdure.engine.turns.inputs import Aborted, ToolReturned
from perdure.engine.turns.state import OpenTool
from perdure.stores.access.cancellation import cancel_all


class OpenTools:
    """Runs the open tools of one turn; `is_aborted` has the same meaning as in `tool_outcome`."""

    def __init__(
        self, environment: Environment, config: TurnConfig, is_aborted: Callable[[], bool]
    ) -> None:
        self._environment = environment
        self._config = config
        self._is_aborted = is_aborted
        self._tasks: dict[int, asyncio.Task[ToolReturned]] = {}

    def run(self, effect: RunTool) -> Coroutine[Any, Any, ToolReturned]:
        """Return the outcome of the tool `effect.tool`; other open tools continue to run."""
        if effect.beside or effect.tool.seq in self._tasks:
            return self._side_by_side(effect)
        return self._outcome(effect.tool)

    async def stop(self) -> dict[int, ToolReturned]:
        """Stop all running tools at the same time, and wait until they have ended.

        Return the outcomes of the tools that had already ended, keyed by the seq of their intent.
        """
        tasks, self._tasks = self._tasks, {}
        ended = {seq: task for seq, task in tasks.items() if task.done()}
        await cancel_all(tasks.values())
        return {
            seq: task.result()
            for seq, task in ended.items()
            if not task.cancelled() and task.exception() is None
        }

    async def _side_by_side(self, effect: RunTool) -> ToolReturned:
        for tool in (effect.tool, *effect.beside):
            if tool.seq not in self._tasks:
                self._tasks[tool.seq] = asyncio.ensure_future(self._outcome(tool))
        # A cancellation ends only the wait: `stop` ends the tools, also this one.
        await asyncio.wait((self._tasks[effect.tool.seq],))
        return self._tasks.pop(effect.tool.seq).result()

    async def _outcome(self, tool: OpenTool) -> ToolReturned:
        """Run the tool and report it to the observer.

        Raises: CancelledError if the run was stopped.
        """
        happened: ToolReturned | Aborted
        with self._environment.observer.effect(self._config, RunTool(tool)) as came:
            happened = await self._until_aborted(tool)
            came(happened)
        if isinstance(happened, Aborted):
            raise asyncio.CancelledError
        return happened

    async def _until_aborted(self, tool: OpenTool) -> ToolReturned | Aborted:
        agent = self._config.agent
        try:
            return await tool_outcome(self._environment, tool, agent, self._is_aborted)
        except asyncio.CancelledError:
            if not self._is_aborted():
                raise
            return Aborted()
