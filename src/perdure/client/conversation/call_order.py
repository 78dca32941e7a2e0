"""Keep the messages of one session in the order of the calls that say them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

Written = asyncio.Future[Any]
"""Done once a call has written, or failed."""


class CallOrder:
    """The order in which the calls of one process write to one session.

    A call waits until the call before it has written, or failed.
    """

    def __init__(self) -> None:
        self._last: Written | None = None

    def take(self, own: Written) -> Written | None:
        """Take the next place for a call that has written once `own` is done.

        Shape: what that call must wait for with `reached`. Calls of several event loops have no
        order, so a call of another loop is not waited for.
        """
        before, self._last = self._last, own
        return before if before is None or before.get_loop() is own.get_loop() else None

    @asynccontextmanager
    async def place(self, *, is_quick: bool = False) -> AsyncGenerator[None]:
        """Run the block after the calls that were made before, and before all that come later.

        A quick call reaches the store before any later call runs. It takes no place while no call
        has one, so that a store can write many of them at once. The first call always takes one:
        it may have to wait until the store can write.
        """
        if is_quick and self._last is not None and self._last.done():
            yield
            return
        own: Written = asyncio.get_running_loop().create_future()
        before = self.take(own)
        try:
            await reached(before)
            yield
        finally:
            if before is None or before.done():
                own.set_result(None)
            else:  # cancelled while it waited: who comes next waits for the same call
                before.add_done_callback(lambda _: own.set_result(None))


async def reached(before: Written | None) -> None:
    """Wait until the call `before` has written, or failed."""
    if before is not None and not before.done():
        await asyncio.wait((before,))
