"""Where the handles ask hooks, and what a runner is given so that it does."""

from __future__ import annotations

from dataclasses import replace

from perdure.engine.hooks.hooked import HookedModels
from perdure.engine.hooks.points import Block, HookPoint
from perdure.engine.hooks.registry import Hooks
from perdure.engine.turns.environment import Environment
from perdure.errors import HookBlocked


def with_hooks(environment: Environment, hooks: Hooks) -> Environment:
    """`environment`, its models and tools asked about."""
    models = HookedModels(environment.models, hooks, environment.stream)
    return replace(environment, models=models, hooks=hooks)


async def asked(hooks: Hooks, point: HookPoint) -> object:
    """What the hooks of `point` answer, None for nothing.

    Raises: HookBlocked.
    """
    _, answer = await hooks.ask(point)
    if isinstance(answer, Block):
        raise HookBlocked(point.name, answer.reason)
    return answer
