"""Connections use only checked addresses."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import httpcore2
import httpx2
import pytest

from perdure.egress.transport import MAX_TRIED, PinnedBackend, pinned_client, resolve_host
from perdure.errors import EgressDenied
from tests.fakes.web_server import Response, WebServer


async def says(*addresses: str) -> list[str]:
    return list(addresses)


async def test_host_name_with_one_blocked_address_is_rejected() -> None:
    backend = PinnedBackend(lambda h, p: says("1.1.1.1", "10.0.0.1"), is_local_open=False)
    with pytest.raises(EgressDenied):
        await backend.connect_tcp("example.com", 443)


async def test_unix_socket_is_rejected() -> None:
    backend = PinnedBackend(resolve_host, is_local_open=True)
    with pytest.raises(EgressDenied):
        await backend.connect_unix_socket("/var/run/docker.sock")


async def test_request_to_a_host_name_connects_to_the_checked_address() -> None:
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async with (
        WebServer(lambda r: Response(body=b"here")) as server,
        pinned_client(resolve=resolve, is_local_open=True) as client,
    ):
        answer = await client.get(f"http://search.lan:{server.port}/")
    assert answer.text == "here"
    assert asked == ["search.lan"]
    assert server.asked[0].headers["host"].startswith("search.lan:")


async def test_each_request_resolves_the_host_name_again() -> None:
    """An answer of the DNS that changes later must be checked, so no connection is kept."""
    asked: list[str] = []
    connections: list[asyncio.Task[None]] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.append(task)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 X\r\ncontent-length: 0\r\n\r\n")
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        async with pinned_client(resolve=resolve, is_local_open=True) as client:
            url = f"http://search.lan:{server.sockets[0].getsockname()[1]}/"
            for _ in range(2):
                await client.get(url)
        await asyncio.gather(*connections)
    assert asked == ["search.lan"] * 2


async def test_only_some_addresses_of_a_host_name_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[str] = []

    class Unreachable(httpcore2.AsyncNetworkBackend):
        async def connect_tcp(
            self, host: str, *_: object, **__: object
        ) -> httpcore2.AsyncNetworkStream:
            tried.append(host)
            raise httpcore2.ConnectError("no connection")

    monkeypatch.setattr(httpcore2, "AnyIOBackend", Unreachable)
    names = [f"1.1.1.{number}" for number in range(10)]
    backend = PinnedBackend(lambda h, p: says(*names), is_local_open=False)
    with pytest.raises(httpcore2.ConnectError):
        await backend.connect_tcp("example.com", 443)
    assert tried == names[:MAX_TRIED]


@pytest.mark.parametrize("url", ["http://example.com/", "https://u:p@example.com/"])
async def test_http_client_and_tool_deny_the_same_destinations(url: str) -> None:
    async with pinned_client(resolve=lambda h, p: says("1.1.1.1")) as client:
        with pytest.raises(EgressDenied):
            await client.get(url)


async def test_client_ignores_the_proxies_of_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with WebServer(lambda r: Response()) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with pinned_client(resolve=lambda h, p: says("127.0.0.1")) as client:
            with pytest.raises((EgressDenied, httpx2.HTTPError)):
                await client.get("https://example.com/")
    assert proxy.connections == 0
