"""Requests to a local server; the configuration must allow local addresses."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx2
import pytest

from perdure.egress import fetch as fetching
from perdure.egress.destinations import destination_of
from perdure.egress.fetch import fetch
from perdure.egress.http_types import HttpRequest
from perdure.errors import EgressDenied, EgressError
from tests.fakes.ports import reserved_port
from tests.fakes.web_server import Response, WebServer


def asked(port: int, target: str = "/", **settings: object) -> HttpRequest:
    url = f"http://127.0.0.1:{port}{target}"
    found = destination_of(url, is_local_open=True)
    return HttpRequest(destination=found, is_local_open=True, **settings)  # pyright: ignore[reportArgumentType] - of Asked


async def test_http_answer_is_read_whole() -> None:
    async with WebServer(lambda r: Response(body=b"hello", headers={"X-A": "1"})) as server:
        found = await fetch(asked(server.port, "/a?b"))
    assert (found.status, found.body, found.headers["x-a"]) == (200, b"hello", "1")
    assert server.asked[0].target == "/a?b"
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_compressed_answer_is_never_asked_for() -> None:
    async with WebServer(lambda r: Response()) as server:
        await fetch(asked(server.port, headers={"Accept-Encoding": "gzip"}))
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_redirect_response_is_returned_and_not_followed() -> None:
    moved = Response(302, {"Location": "/elsewhere"})
    async with WebServer(lambda r: moved) as server:
        found = await fetch(asked(server.port))
    assert (found.status, found.headers["location"]) == (302, "/elsewhere")
    assert len(server.asked) == 1


async def test_endless_answer_is_cut() -> None:
    async with WebServer(lambda r: Response(body=b"x" * 4096, is_endless=True)) as server:
        found = await fetch(asked(server.port, max_answer_bytes=10_000))
    assert found.is_cut
    assert len(found.body) == 10_000


class Pieces(httpx2.AsyncByteStream):
    """The body of an answer, in the given pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = pieces

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


@pytest.mark.parametrize(
    ("pieces", "is_cut"), [((b"x" * 10,), False), ((b"x" * 10, b"y"), True), ((b"x" * 11,), True)]
)
async def test_answer_longer_than_the_limit_is_reported_as_cut(
    monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...], is_cut: bool
) -> None:
    answer = httpx2.MockTransport(lambda _: httpx2.Response(200, stream=Pieces(*pieces)))

    def client(**_: object) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=answer)

    monkeypatch.setattr(fetching, "pinned_client", client)
    found = await fetch(asked(80, max_answer_bytes=10))
    assert (found.body, found.is_cut) == (b"x" * 10, is_cut)


async def test_silent_server_times_out() -> None:
    async with WebServer(lambda r: Response(is_silent=True)) as server:
        with pytest.raises(EgressError):
            await fetch(asked(server.port, timeout_s=0.1))


async def test_unreachable_server_error_omits_address() -> None:
    with reserved_port() as port, pytest.raises(EgressError) as failed:
        await fetch(asked(port))
    assert "127" not in str(failed.value)
    assert str(port) not in str(failed.value)


async def test_connection_checks_the_resolved_address_again() -> None:
    async with WebServer(lambda r: Response()) as server:
        opened = asked(server.port)
        closed = HttpRequest(destination=opened.destination)
        with pytest.raises(EgressDenied):
            await fetch(closed)
    assert server.connections == 0
