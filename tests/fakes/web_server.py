"""A web server on loopback that records requests and answers as a test defines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec


class Request(msgspec.Struct, frozen=True):
    """One request as the server received it. Shape: names in `headers` are lower case."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


class Response(msgspec.Struct, frozen=True):
    """The answer to a request.

    With `is_endless` the body continues until the client disconnects.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    is_endless: bool = False
    is_silent: bool = False


class WebServer:
    """A server for HTTP/1.1, one request per connection. `asked` contains the requests in order."""

    def __init__(self, answer: Callable[[Request], Response]) -> None:
        self._answer = answer
        self.asked: list[Request] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self.port = 0

    async def __aenter__(self) -> WebServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._exchange(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left, as it may
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, target, _ = head[0].split(" ")
        pairs = (line.split(": ", 1) for line in head[1:] if line)
        headers = {name.lower(): value for name, value in pairs}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Request(method, target, headers, body)
        self.asked.append(request)
        answer = self._answer(request)
        if answer.is_silent:
            await reader.read()
            return
        writer.write(f"HTTP/1.1 {answer.status} X\r\n".encode())
        size = {} if answer.is_endless else {"content-length": str(len(answer.body))}
        for name, value in {**answer.headers, **size, "connection": "close"}.items():
            writer.write(f"{name}: {value}\r\n".encode())
        writer.write(b"\r\n" + answer.body)
        await writer.drain()
        while answer.is_endless:
            writer.write(answer.body)
            await writer.drain()
