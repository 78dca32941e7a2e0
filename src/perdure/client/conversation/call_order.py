"""Keep the messages of one session in the order of the calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from perdure.stores.access.process import running_loop

Written = asyncio.Future[Any]
"""A future that is done when a call has written its entries, or failed."""


class CallOrder:
    """The order in which the calls of one process write to one session.

    A call waits until the previous call has written or failed.
    """

    def __init__(self) -> None:
        self._last: Written | None = None

    def take(self, own: Written) -> Written | None:
        """Reserve the next position for a call; the call has finished writing when `own` is done.

        Shape: the earlier call, which `wait_for_call` waits for; None if there is nothing to wait
        for. Calls from different event loops have no order, so a call does not wait for a call from
        another loop.
        """
        before, self._last = self._last, own
        return before if before is None or before.get_loop() is own.get_loop() else None

    @property
    def is_free(self) -> bool:
        """Whether a call can skip the order because all earlier calls have finished.

        A store can write many calls together if they skip the order. The first call never skips the
        order, because it might have to wait for the store, and later calls must not overtake it.
        """
        return self._last is not None and self._last.done()

    @asynccontextmanager
    async def place(self) -> AsyncGenerator[None]:
        """Run the block after earlier calls and before later calls."""
        own: Written = running_loop().create_future()
        before = self.take(own)
        try:
            await wait_for_call(before)
            yield
        finally:
            if before is None or before.done():
                own.set_result(None)
            else:  # cancelled while it waited: the next call waits for the same call
                before.add_done_callback(lambda _: own.set_result(None))


async def wait_for_call(before: Written | None) -> None:
    """Wait until the call `before` has written, or failed."""
    if before is not None and not before.done():
        await asyncio.wait((before,))
