"""A real HTTP server on the loopback that speaks OpenAI's streaming chat completions.

It runs in the test's own event loop on a port of its own, refuses what OpenAI would refuse
(`openai_rules`), records every request, and answers as it is told: whole answers, errors, answers
that break off, that drip, that never come. No OpenAI code is involved, so that ours is not tested
against itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.openai_rules import Json, faults_of

Chunk = Mapping[str, Any]
Handler = Callable[["Exchange"], Awaitable[None]]


@dataclass(frozen=True)
class Recorded:
    """A request that arrived. Header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Json

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages it sent."""
        return self.body["messages"]


@dataclass(frozen=True)
class ServerAnswer:
    """What the model says. `calls` are (id, name, JSON of the arguments)."""

    text: str = ""
    thinking: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = field(
        default_factory=lambda: {"prompt_tokens": 12, "completion_tokens": 5, "total_tokens": 17}
    )
    chunk_chars: int = 7
    thinking_field: str = "reasoning_content"

    def chunks(self) -> list[Chunk]:
        """The chunks of a clean stream; the calls' arguments come interleaved."""
        reason = self.finish_reason or ("tool_calls" if self.calls else "stop")
        found = [_choice({"role": "assistant", "content": ""})]
        found += [_choice({self.thinking_field: piece}) for piece in self._pieces(self.thinking)]
        found += [_choice({"content": piece}) for piece in self._pieces(self.text)]
        found += [_choice({"tool_calls": [piece]}) for piece in self._call_pieces()]
        found.append(_choice({}, reason))
        if self.usage is not None:
            found.append(_chunk([], usage=self.usage))
        return found

    def _call_pieces(self) -> list[Chunk]:
        pieces: list[Chunk] = [
            {"index": i, "id": id_, "type": "function", "function": {"name": name, "arguments": ""}}
            for i, (id_, name, _) in enumerate(self.calls)
        ]
        waiting = deque((i, deque(self._pieces(args))) for i, (_, _, args) in enumerate(self.calls))
        while waiting:
            index, parts = waiting.popleft()
            if parts:
                pieces.append({"index": index, "function": {"arguments": parts.popleft()}})
                waiting.append((index, parts))
        return pieces

    def _pieces(self, text: str) -> list[str]:
        return [text[i : i + self.chunk_chars] for i in range(0, len(text), self.chunk_chars)]


class Exchange:
    """One request and the means to answer it, well or badly."""

    def __init__(
        self, request: Recorded, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.request = request
        self._reader = reader
        self._writer = writer
        self.is_broken = False

    async def head(self, status: int = 200, **headers: str) -> None:
        """The status line and headers of an answer that comes in pieces."""
        fields = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        await self._send("\r\n".join([*lines, "", ""]).encode())

    async def event(self, data: Chunk | str) -> None:
        """One event of the stream."""
        text = data if isinstance(data, str) else json.dumps(data)
        await self.piece(f"data: {text}\n\n".encode())

    async def piece(self, data: bytes) -> None:
        """Some bytes of the body."""
        await self._send(b"%x\r\n%b\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of a body that came in pieces."""
        await self._send(b"0\r\n\r\n")

    async def whole(self, status: int, body: bytes, **headers: str) -> None:
        """An answer that is not a stream."""
        fields = {"content-type": "application/json", "content-length": str(len(body))}
        fields.update({name.replace("_", "-"): value for name, value in headers.items()})
        lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in fields.items())]
        await self._send("\r\n".join([*lines, "", ""]).encode() + body)

    def break_off(self) -> None:
        """Close the connection as it is."""
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


class OpenAIServer:
    """The server. The next request gets the first of `handlers`; the last one serves all others."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.refused: list[list[str]] = []
        self.handlers: deque[Handler] = deque([answering(ServerAnswer(text="Hello."))])
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._open_calls = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """What a client takes as base URL."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    def will(self, *handlers: Handler) -> None:
        """Answer the next requests so; the last of `handlers` answers all after it."""
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
        """Answer one request; whether the connection can take another."""
        request = await _read(reader)
        self.requests.append(request)
        exchange = Exchange(request, reader, writer)
        faults = faults_of(request.body)
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
async def openai_server() -> AsyncGenerator[OpenAIServer]:
    """A server that runs as long as the block."""
    server = OpenAIServer()
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


# Ways to answer ----------------------------------------------------------------------------------


def answering(answer: ServerAnswer, *, pause_s: float = 0.0) -> Handler:
    """The whole answer, cleanly, with `pause_s` before each chunk."""

    async def handle(exchange: Exchange) -> None:
        await exchange.head()
        for chunk in answer.chunks():
            await asyncio.sleep(pause_s)
            await exchange.event(chunk)
        await exchange.event("[DONE]")
        await exchange.end()

    return handle


def failing(
    status: int, message: str = "", *, code: str = "", body: bytes | None = None, **headers: str
) -> Handler:
    """An error before the stream. `body` replaces the error object."""

    async def handle(exchange: Exchange) -> None:
        error = {"message": message, "type": "error", "code": code or None}
        content = json.dumps({"error": error}).encode() if body is None else body
        await exchange.whole(status, content, **headers)

    return handle


def sending(*events: Chunk | str, is_ended: bool = True) -> Handler:
    """These events; then the end of the body, or without it the end of the connection."""

    async def handle(exchange: Exchange) -> None:
        await exchange.head()
        for event in events:
            await exchange.event(event)
        if is_ended:
            await exchange.end()
        else:
            exchange.break_off()

    return handle


def breaking_off(chunks: Iterable[Chunk]) -> Handler:
    """Some chunks, then the connection breaks."""
    return sending(*chunks, is_ended=False)


def hanging(chunks: Iterable[Chunk] = ()) -> Handler:
    """Some chunks, then nothing more until the client gives up."""

    async def handle(exchange: Exchange) -> None:
        await exchange.head()
        for chunk in chunks:
            await exchange.event(chunk)
        await exchange.client_left()

    return handle


def plain(content_type: str, body: bytes) -> Handler:
    """Status 200 and something that is no stream."""

    async def handle(exchange: Exchange) -> None:
        await exchange.whole(200, body, content_type=content_type)

    return handle


def _choice(delta: Chunk, finish_reason: str | None = None) -> Chunk:
    return _chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def _chunk(choices: list[Chunk], **more: object) -> Chunk:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": "served-model",
        "choices": choices,
        **more,
    }


async def _read(reader: asyncio.StreamReader) -> Recorded:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(":") for line in lines if line)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Recorded(method, path, headers, json.loads(body or b"{}"))
