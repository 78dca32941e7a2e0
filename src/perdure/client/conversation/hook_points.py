"""Where the handles ask hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.engine.hooks.registry import Hooks
from perdure.errors import HookBlocked
from perdure.stores.access.lazy_modules import Later

if TYPE_CHECKING:
    from perdure.engine.hooks import points
else:
    points = Later("perdure.engine.hooks.points")


async def ask_hooks(hooks: Hooks, point: points.HookPoint) -> object:
    """What the hooks of `point` answer, None for nothing.

    Raises: HookBlocked.
    """
    _, answer = await hooks.ask(point)
    if isinstance(answer, points.Block):
        raise HookBlocked(point.name, answer.reason)
    return answer
