"""A proxy for a PostgreSQL server that breaks a connection after a chosen message.

The proxy forwards one message after the other in both directions. A test can break a connection at
each message, or pause it between two messages.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

Side = Literal["client", "server"]
"""Which side sent a message."""

Break = Literal["closed", "reset", "told"]
"""How a conversation breaks: both connections are closed, or reset, or the server first reports
that it ends the connection, as in a shutdown.
"""

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]

TOLD_S = 0.01

_SYNC = b"S"
_FATAL = b"SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"
_RESET = struct.pack("ii", 1, 0)


class Cut(NamedTuple):
    """Where and how the proxy breaks a connection.

    The connection breaks after `after` more messages from `side`; `how` is the kind of break.
    """

    side: Side
    after: int
    how: Break


class Proxy:
    """A proxy for any number of connections. The first connection that reaches the cut is broken.

    After a message that contains `marker`, the proxy forwards no Sync until `released` is set.
    """

    def __init__(self, server: Path) -> None:
        self._server = server
        self._cut: Cut | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self.marker: bytes | None = None
        self.is_held = asyncio.Event()
        self.released = asyncio.Event()

    def cut(self, cut: Cut) -> None:
        """Break a connection at `cut`. Messages before the call of this method do not count."""
        self._cut = cut

    def end_cut(self) -> int | None:
        """Cancel the cut; return how many messages were left, None if the cut has happened."""
        cut, self._cut = self._cut, None
        return None if cut is None else cut.after

    def close(self) -> None:
        """End every connection."""
        self.released.set()
        for writer in self._writers:
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        server = await asyncio.open_unix_connection(str(self._server))
        self._writers += [writer, server[1]]
        with suppress(asyncio.CancelledError):
            await asyncio.gather(
                self._pass("client", (reader, writer), server),
                self._pass("server", server, (reader, writer)),
            )

    async def _pass(self, side: Side, source: Stream, to: Stream) -> None:
        is_marked = False
        with suppress(OSError, asyncio.IncompleteReadError):
            if side == "client":  # the first message has no type
                to[1].write(await _message(source[0], b""))
            while True:
                message = await _message(source[0], await source[0].readexactly(1))
                if side == "client" and self.marker is not None:
                    is_marked = is_marked or self.marker in message
                    if is_marked and message[:1] == _SYNC:
                        self.is_held.set()
                        await self.released.wait()
                if (how := self._break_of(side)) is not None:
                    client, server = (source, to) if side == "client" else (to, source)
                    await _end(how, client, server)
                    return
                to[1].write(message)
                await to[1].drain()
        to[1].close()

    def _break_of(self, side: Side) -> Break | None:
        """Return how the connection breaks before the next message of `side`, or None."""
        cut = self._cut
        if cut is None or cut.side != side:
            return None
        self._cut = cut._replace(after=cut.after - 1) if cut.after else None
        return None if cut.after else cut.how


async def _message(source: asyncio.StreamReader, kind: bytes) -> bytes:
    length = await source.readexactly(4)
    return kind + length + await source.readexactly(int.from_bytes(length) - 4)


async def _end(how: Break, client: Stream, server: Stream) -> None:
    server[1].close()
    if how == "told":
        client[1].write(b"E" + struct.pack("!i", len(_FATAL) + 4) + _FATAL)
        await asyncio.sleep(TOLD_S)  # otherwise the end arrives together with the message
    if how == "reset":
        plug = client[1].get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    client[1].close()


@asynccontextmanager
async def proxied(address: str) -> AsyncGenerator[tuple[Proxy, str]]:
    """Run a proxy; yield it and the address of the same database through it."""
    before, _, folder = address.partition("?host=")
    proxy = Proxy(Path(folder, ".s.PGSQL.5432"))
    listening = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    plain = f"{before}?host=127.0.0.1&port={port}&sslmode=disable&gssencmode=disable"
    async with listening:
        try:
            yield proxy, plain
        finally:
            proxy.close()
