"""A lock for coroutines of several event loops; they acquire it in the order of their requests."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress

from perdure.stores.access.process import running_loop

_Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[None]"]


class LoopLock:
    """A lock for ``async with``.

    An `asyncio.Lock` is not enough, because it is bound to the first loop that waits for it.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._waiting: deque[_Waiter] = deque()

    async def __aenter__(self) -> None:
        with self._guard:
            if not self._is_held:
                self._is_held = True
                return
            loop = running_loop()
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            self._give_up(loop, turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._hand_on()

    def _give_up(self, loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None]) -> None:
        with self._guard, suppress(ValueError):
            self._waiting.remove((loop, turn))
            return
        self._hand_on()  # it had already acquired the lock

    def _hand_on(self) -> None:
        while True:
            with self._guard:
                if not self._waiting:
                    self._is_held = False
                    return
                loop, turn = self._waiting.popleft()
            with suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(_begin, turn)
                return


def _begin(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
