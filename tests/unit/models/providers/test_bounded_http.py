"""Answers of providers: not compressed, and no longer than the limit."""

from __future__ import annotations

import gzip

import httpx2
import pytest

from perdure.bounds.limits import InputLimits
from perdure.models.providers.bounded_http import HOOKS, RejectedAnswer
from tests.fakes.web_server import Request, Response, WebServer


async def asked(server: WebServer) -> bytes:
    async with httpx2.AsyncClient(event_hooks=HOOKS, trust_env=False) as client:
        return (await client.get(f"http://127.0.0.1:{server.port}/")).content


async def test_answer_within_the_limit_is_read() -> None:
    def answer(request: Request) -> Response:
        assert request.headers["accept-encoding"] == "identity"
        return Response(body=b"hello")

    async with WebServer(answer) as server:
        assert await asked(server) == b"hello"


async def test_compressed_answer_is_rejected() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    encoded = Response(headers={"content-encoding": "gzip"}, body=bomb)
    async with WebServer(lambda _: encoded) as server:
        with pytest.raises(RejectedAnswer, match="compressed"):
            await asked(server)


async def test_answer_without_an_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    few = [InputLimits(model_answer_bytes=10_000)]
    monkeypatch.setattr("perdure.bounds.limits._in_force", few)
    async with WebServer(lambda _: Response(body=b"x" * 1000, is_endless=True)) as server:
        with pytest.raises(RejectedAnswer, match=r"limits\.model_answer_bytes = 10,000"):
            await asked(server)
