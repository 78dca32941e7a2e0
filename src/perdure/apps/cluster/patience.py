"""Waits for an unavailable store, because workers often start before their database."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from perdure.apps.terminal.output import remark
from perdure.errors import StoreUnavailable

T = TypeVar("T")

FIRST_WAIT_S, LONGEST_WAIT_S = 0.2, 5.0
REMARK_S = 60.0
"""Interval after which the same reason is printed again."""


async def when_available(make: Callable[[], Awaitable[T]], stopping: asyncio.Event) -> T | None:
    """Return the result of `make`; retry while the store is unavailable.

    Returns None once `stopping` is set. While the store is unavailable, prints each new reason
    immediately, and an unchanged reason every minute; afterwards, reports the end of the wait.
    Raises: the errors of `make`, except a temporary StoreUnavailable.
    """
    loop = asyncio.get_running_loop()
    wait_s, printed, printed_at = FIRST_WAIT_S, "", 0.0
    while not stopping.is_set():
        try:
            made = await make()
        except StoreUnavailable as error:
            if error.is_lasting:
                raise
            reason = str(error)
            if reason != printed or loop.time() - printed_at >= REMARK_S:
                remark(f"waiting for the store: {reason}")
                printed, printed_at = reason, loop.time()
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        else:
            if printed:
                remark("the store is available")
            return made
    return None
