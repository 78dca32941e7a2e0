"""Finish work whose caller was cancelled, cancel tasks, and end cancelled workers.

Examples of work that must finish after a cancellation are acquiring a lease, recording the cost of
a call, and returning a connection to its pool.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

FINISH_S = 10.0
"""How long a cancelled caller waits before it cancels its work: enough for a slow disk."""


async def finished(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which finishes even if the caller is cancelled.

    The function cancels `work` if it does not end within `FINISH_S` of the first cancellation.
    Raises: CancelledError after `work` has ended, however often the caller was cancelled.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        late = asyncio.get_running_loop().call_later(FINISH_S, task.cancel)
        while not task.done():  # it may be cancelled again
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait((task,))
        late.cancel()
        if not task.cancelled():
            task.exception()  # seen: asyncio does not print it
        raise


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel `tasks`, and return after all of them have ended; ignore their errors."""
    ending = tuple(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


class UntilCancelled:
    """A queue of work for a worker. A cancelled worker that asks for work gets CancelledError."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    async def get(self) -> Any:
        """Return the next work. Raises: CancelledError, even if the task caught an earlier one."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        return await self._queue.get()
