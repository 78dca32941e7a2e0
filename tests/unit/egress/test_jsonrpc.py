"""A JSON-RPC request that is not sent gets an error response; answers have a size limit."""

from __future__ import annotations

from collections.abc import Sequence

import httpx2
import msgspec
import pytest

from perdure.bounds.limits import InputLimits
from perdure.egress import jsonrpc
from perdure.egress.http_types import Resolve
from perdure.egress.transport import resolve_host
from perdure.errors import EgressError
from tests.fakes.web_server import Request, Response, WebServer


async def answered(
    url: str, *, is_local_open: bool = False, resolve: Resolve = resolve_host
) -> httpx2.Response:
    client = jsonrpc.rpc_client(
        headers={"x-a": "b"}, timeout_s=60, is_local_open=is_local_open, resolve=resolve
    )
    async with client:
        return await client.post(url, json={"id": 1})


async def at_home(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@pytest.mark.parametrize("url", ["https://127.0.0.1:1/mcp", "http://a.example/mcp"])
async def test_denied_request_gets_error_response(url: str) -> None:
    answer = await answered(url)
    error = msgspec.json.decode(answer.content)["error"]
    assert error["code"] == jsonrpc.NOT_SENT
    assert "127.0.0.1" not in error["message"]


async def test_redirect_to_local_host_is_not_followed() -> None:
    answer = await answered("https://a.example/mcp", resolve=at_home)
    assert "not on the public internet" in answer.text


async def test_unreachable_server_gets_error_response() -> None:
    answer = await answered("http://127.0.0.1:9/mcp", is_local_open=True)
    assert "no connection could be made" in answer.text


async def test_redirect_is_returned_as_an_answer() -> None:
    def away(request: Request) -> Response:
        return Response(307, {"location": "/elsewhere"})

    async with WebServer(away) as server:
        answer = await answered(f"http://127.0.0.1:{server.port}/mcp", is_local_open=True)
    assert answer.status_code == 307
    assert [request.headers["x-a"] for request in server.asked] == ["b"]


async def test_endless_answer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [InputLimits(mcp_answer_bytes=10_000)]
    monkeypatch.setattr("perdure.bounds.limits._in_force", few)

    def endless(request: Request) -> Response:
        return Response(body=b"x" * 1000, is_endless=True)

    async with WebServer(endless) as server:
        with pytest.raises(EgressError, match=r"longer than limits.mcp_answer_bytes = 10,000"):
            await answered(f"http://127.0.0.1:{server.port}/mcp", is_local_open=True)
