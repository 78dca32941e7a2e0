"""Slow clients, huge bodies and many connections: the server keeps serving others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.fakes.samples import with_larger
from tests.fakes.served import Served, served

MIB = 1024 * 1024
AT_ONCE = 200
"""Connections opened at the same time: within the usual limit of open files."""


async def require_served(server: Served) -> None:
    """Check that another client gets an answer, and can start a turn."""
    async with asyncio.timeout(60):
        assert (await server.http.get("/v1/sessions")).status_code == 200
        await server.said("hello")


@asynccontextmanager
async def connected(server: Served, text: str) -> AsyncGenerator[asyncio.StreamReader]:
    """A connection that sent `text`, and sends and reads nothing more."""
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=64)
    try:
        writer.write(text.encode())
        yield reader
    finally:
        writer.transport.abort()


def asking(server: Served, path: str, *headers: str, method: str = "GET") -> str:
    """Return the head of an HTTP request."""
    token = server.http.headers["authorization"]
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: {token}", *headers)
    return "\r\n".join((*lines, "", ""))


async def test_stalled_clients_do_not_stop_other_clients(tmp_path: Path) -> None:
    async with served(tmp_path, ["x"] * 99) as server, AsyncExitStack() as stack:
        session = await server.said("x" * 200_000)
        body = "Content-Type: application/json"
        unfinished = (
            "",
            "GET / HT",
            asking(server, "/v1/sessions")[:-2],
            asking(server, "/v1/messages", body, "Content-Length: 99", method="POST"),
            asking(server, "/v1/messages", body, "Transfer-Encoding: chunked", method="POST"),
            asking(server, f"/v1/sessions/{session}/events"),
            asking(server, "/v1/events?after=0"),
        )
        for number in range(AT_ONCE):
            await stack.enter_async_context(connected(server, unfinished[number % len(unfinished)]))
        await require_served(server)


async def test_stream_with_endless_headers_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path, ["x"] * 9) as server:
        many = [f"X-{number}: {'x' * 1_000}" for number in range(1_000)]
        async with connected(server, asking(server, "/v1/sessions", *many)) as reader:
            async with asyncio.timeout(60):
                first = await _first_bytes(reader)
        assert first[9:10] in (b"4", b"")
        await require_served(server)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_huge_request_body_is_refused_before_it_is_read_completely(
    tmp_path: Path, *, is_chunked: bool
) -> None:
    async with served(tmp_path, ["x"] * 9) as server:
        length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {10**12}"
        head = asking(
            server, "/v1/messages", "Content-Type: application/json", length, method="POST"
        )
        chunk = f"{MIB:x}\r\n{'x' * MIB}\r\n"
        body = chunk * 11 if is_chunked else "x"
        async with connected(server, head + body) as reader, asyncio.timeout(60):
            assert b" 413 " in await _first_bytes(reader)
        await require_served(server)


@pytest.mark.parametrize(
    "attempts",
    with_larger(400, 10_000),
    ids=["sample", "whole"],
)
@pytest.mark.timeout(300)
async def test_many_connections_do_not_stop_other_clients(tmp_path: Path, attempts: int) -> None:
    async with served(tmp_path, ["x"] * 9_999) as server:
        for start in range(0, attempts, AT_ONCE):
            async with AsyncExitStack() as stack:
                for number in range(start, start + AT_ONCE):
                    text = asking(server, "/healthz") if number % 2 else "GET /"
                    await stack.enter_async_context(connected(server, text))
                assert (await server.http.get("/healthz")).status_code == 200
        await require_served(server)


async def _first_bytes(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(64)
    except ConnectionError:
        return b""
