"""The process of a server: at SIGTERM it says that it is not ready, and then stops."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

from uvicorn import Config, Server

from perdure.apps.server.flows.socket import MAX_MESSAGE_BYTES


def config(**options: Any) -> Config:
    """Return the settings of a server process; `options` are those of uvicorn."""
    return Config(**options, ws_max_size=MAX_MESSAGE_BYTES)


class DrainingServer(Server):
    """Calls `drain` at the first SIGTERM, and stops `drain_s` seconds later.

    It serves meanwhile, so that a balancer can send new requests elsewhere first. SIGINT and a
    second SIGTERM stop it at once.
    """

    def __init__(self, config: Config, drain: Callable[[], None], drain_s: float) -> None:
        super().__init__(config)
        self._drain = drain
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """React to a signal; called between two steps of the main thread."""
        is_first = sig == signal.SIGTERM and not self._is_draining
        self._is_draining = True
        self._drain()
        if is_first and self._drain_s and self._loop is not None:
            stop = super().handle_exit
            self._loop.call_soon_threadsafe(
                lambda: asyncio.get_running_loop().call_later(self._drain_s, stop, sig, frame)
            )
        else:
            super().handle_exit(sig, frame)
