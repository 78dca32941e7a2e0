"""The standard error of a server's program: its last lines, for error messages."""

from __future__ import annotations

import asyncio
import os
from typing import TextIO

KEPT_BYTES = 4096


class Complaints(asyncio.Protocol):
    """The end of a program's standard error; earlier output is dropped.

    `stream` is passed to the program. Created by `complaints`, closed by the caller.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._kept = b""
        self._transport: asyncio.BaseTransport | None = None

    @property
    def text(self) -> str:
        """Return its last output, on one line."""
        return " ".join(self._kept.decode(errors="replace").split())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-KEPT_BYTES:]

    def close(self) -> None:
        """Stop listening."""
        self.stream.close()
        if self._transport is not None:
            self._transport.close()


async def complaints() -> Complaints:
    """Open a `Complaints` for a program's standard error."""
    reading, writing = os.pipe()
    found = Complaints(os.fdopen(writing, "w"))
    pipe = os.fdopen(reading, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: found, pipe)
    return found
