"""The process of a server: at SIGTERM, it first reports that it is not ready, and stops later."""

from __future__ import annotations

import asyncio
import signal
import socket
from types import FrameType
from typing import Any

from uvicorn import Config, Server

from perdure.apps.server.flows.socket import MAX_MESSAGE_BYTES
from perdure.apps.server_commands.endpoint import Draining


def config(**options: Any) -> Config:
    """Return the configuration of a server process; `options` are passed to uvicorn."""
    return Config(**options, ws_max_size=MAX_MESSAGE_BYTES)


class DrainingServer(Server):
    """A server that drains its `application` at the first SIGTERM, and stops later.

    The server stops `drain_s` seconds after the drain began.

    During the drain, the server still answers requests, so that a load balancer can switch to other
    servers. SIGINT or a second SIGTERM stops the server immediately.
    """

    def __init__(self, config: Config, application: Draining, drain_s: float) -> None:
        super().__init__(config)
        self._application = application
        self._drain_s = drain_s
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_draining = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen."""
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Python can call this method at any point of the code that the main thread runs.
        """
        is_first = sig == signal.SIGTERM and not self._is_draining
        self._is_draining = True
        self._application.drain()
        if is_first and self._drain_s and self._loop is not None:
            self._loop.call_soon_threadsafe(
                lambda: asyncio.get_running_loop().call_later(self._drain_s, self._stop, sig, frame)
            )
        else:
            self._stop(sig, frame)

    def _stop(self, sig: int, frame: FrameType | None) -> None:
        self._application.stop()
        if sig == signal.SIGTERM:
            self.should_exit = True  # uvicorn would raise it again, before the store is closed
        else:
            super().handle_exit(sig, frame)
