"""A real HTTP server on loopback that answers like the service of a model, in any wire format.

The server runs in the event loop of the test on its own port. The server rejects the requests that
the real service would reject (each format has its rules), records every request, and answers as
configured: complete answers, errors, broken connections, slow answers, or none. The server uses no
provider code of perdure, so that this code is not tested against itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Json = Mapping[str, Any]
Chunk = Mapping[str, Any]
Handler = Callable[["Exchange"], Awaitable[None]]
Rules = Callable[["Recorded"], list[str]]
"""The faults that the service would find in a request; empty if it would accept the request."""

ErrorBody = Callable[[int, str, str], Json]
"""Creates the body of an error in the format's own shape, from status, message and code."""


@dataclass(frozen=True)
class Recorded:
    """A request that arrived. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Return the messages in the request."""
        return self.body["messages"]


class Exchange:
    """One request, and functions to answer it correctly or incorrectly."""

    def __init__(
        self,
        server: ModelServer,
        request: Recorded,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.server = server
        self.request = request
        self._reader = reader
        self._writer = writer
        self.is_broken = False

    async def head(self, status: int = 200, **headers: str) -> None:
        """Send the status line and headers of a chunked answer."""
        fields = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        await self._send("\r\n".join([*lines, "", ""]).encode())

    async def event(self, data: Chunk | str) -> None:
        """Send one event of the stream; a string that begins with ``event:`` is sent unchanged."""
        if isinstance(data, str) and data.startswith("event:"):
            await self.piece(f"{data}\n\n".encode())
            return
        text = data if isinstance(data, str) else json.dumps(data)
        kind: object = None if isinstance(data, str) else data.get("type")
        named = f"event: {kind}\n" if isinstance(kind, str) else ""
        await self.piece(f"{named}data: {text}\n\n".encode())

    async def piece(self, data: bytes) -> None:
        """Send some bytes of the body."""
        await self._send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """Send the end of a chunked body."""
        await self._send(b"0\r\n\r\n")

    async def whole(self, status: int, body: bytes, **headers: str) -> None:
        """Send an answer that is not a stream."""
        fields = {"content-type": "application/json", "content-length": str(len(body))}
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        await self._send("\r\n".join([*lines, "", ""]).encode() + body)

    def break_off(self) -> None:
        """Close the connection without ending the answer."""
        self.is_broken = True
        self._writer.close()

    async def client_left(self) -> None:
        """Wait until the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(1024):
                pass
        self.is_broken = True

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class ModelServer:
    """The server.

    `handlers` answer the next requests in order; the last handler answers all later requests.
    """

    def __init__(self, rules: Rules, error_body: ErrorBody, path: str = "") -> None:
        self.error_body = error_body
        self.requests: list[Recorded] = []
        self.refused: list[list[str]] = []
        self.handlers: deque[Handler] = deque([failing(500, "nobody said what to answer")])
        self._rules = rules
        self._path = path
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._open_calls = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Return the base URL for a client."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}{self._path}"

    def will(self, *handlers: Handler) -> None:
        """Answer the next requests with `handlers`; the last handler answers all later requests."""
        self.handlers = deque(handlers)

    async def start(self) -> None:
        """Begin to listen."""
        self._server = await asyncio.start_server(self._accepted, "127.0.0.1", 0)

    async def stop(self) -> None:
        """Close every connection."""
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        try:
            while await self._served(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        finally:
            writer.close()

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; return whether the connection can be used for another."""
        request = await _read(reader)
        self.requests.append(request)
        exchange = Exchange(self, request, reader, writer)
        faults = self._rules(request)
        if faults:
            self.refused.append(faults)
            await failing(400, "; ".join(faults))(exchange)
            return True
        handler = self.handlers[0] if len(self.handlers) == 1 else self.handlers.popleft()
        self._open_calls += 1
        self.is_idle.clear()
        try:
            await handler(exchange)
        finally:
            self._open_calls -= 1
            if not self._open_calls:
                self.is_idle.set()
        return not exchange.is_broken


@contextlib.asynccontextmanager
async def running(server: ModelServer) -> AsyncGenerator[ModelServer]:
    """Run `server` for the duration of the block."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


# Ways to answer ----------------------------------------------------------------------------------


def streaming(events: Iterable[Chunk | str], *, pause_s: float = 0.0) -> Handler:
    """Send all events of an answer, with `pause_s` before each."""
    return paced(events, lambda: asyncio.sleep(pause_s))


def paced(events: Iterable[Chunk | str], pause: Callable[[], Awaitable[None]]) -> Handler:
    """Send all events of an answer, with `pause` before each."""

    async def handle(exchange: Exchange) -> None:
        await exchange.head()
        for event in events:
            await pause()
            await exchange.event(event)
        await exchange.end()

    return handle


def failing(
    status: int, message: str = "", *, code: str = "", body: bytes | None = None, **headers: str
) -> Handler:
    """Return an error before the stream. `body` replaces the error object."""

    async def handle(exchange: Exchange) -> None:
        error = exchange.server.error_body(status, message, code)
        content = json.dumps(error).encode() if body is None else body
        await exchange.whole(status, content, **headers)

    return handle


def sending(*events: Chunk | str, is_ended: bool = True) -> Handler:
    """Send `events`, then end the body, or break the connection if not `is_ended`."""

    async def handle(exchange: Exchange) -> None:
        await exchange.head()
        for event in events:
            await exchange.event(event)
        if is_ended:
            await exchange.end()
        else:
            exchange.break_off()

    return handle


def breaking_off(chunks: Iterable[Chunk | str]) -> Handler:
    """Send some chunks, then break the connection."""
    return sending(*chunks, is_ended=False)


def hanging(chunks: Iterable[Chunk | str] = ()) -> Handler:
    """Send some chunks, then nothing more until the client disconnects."""

    async def handle(exchange: Exchange) -> None:
        await exchange.head()
        for chunk in chunks:
            await exchange.event(chunk)
        await exchange.client_left()

    return handle


def mute() -> Handler:
    """Send no byte until the client disconnects."""

    async def handle(exchange: Exchange) -> None:
        await exchange.client_left()

    return handle


def plain(content_type: str, body: bytes) -> Handler:
    """Return status 200 and a body that is no stream."""

    async def handle(exchange: Exchange) -> None:
        await exchange.whole(200, body, content_type=content_type)

    return handle


def pieces(text: str, size: int) -> list[str]:
    """Return `text` in pieces of `size` characters."""
    return [text[i : i + size] for i in range(0, len(text), size)]


async def _read(reader: asyncio.StreamReader) -> Recorded:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Recorded(method, path, headers, json.loads(body or b"{}"))
