"""Where the handles ask hooks."""

from __future__ import annotations

from perdure.engine.hooks.points import Block, HookPoint
from perdure.engine.hooks.registry import Hooks
from perdure.errors import HookBlocked


async def ask_hooks(hooks: Hooks, point: HookPoint) -> object:
    """What the hooks of `point` answer, None for nothing.

    Raises: HookBlocked.
    """
    _, answer = await hooks.ask(point)
    if isinstance(answer, Block):
        raise HookBlocked(point.name, answer.reason)
    return answer
