"""The application of ``perdure mcp serve --http``."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import perdure
from perdure.apps.server.access.rates import Limits
from perdure.apps.server.mcp_application import McpApplication
from perdure.server import TokenFile, TokenRecord
from tests.fakes.served import serving_app

pytestmark = pytest.mark.full_only


async def test_mcp_application_limits_requests_and_rejects_them_while_draining(
    tmp_path: Path,
) -> None:
    tokens = TokenFile(tmp_path / "tokens.json")
    token = tokens.create(TokenRecord("t", "", "read", 0), b"x" * 32)
    headers = {"Authorization": f"Bearer {token}"}
    async with perdure.open("memory:") as store:
        limited = McpApplication(store, tokens, ("desk.example",), limits=Limits(requests=2))
        async with (
            serving_app(limited) as url,
            httpx.AsyncClient(base_url=url, timeout=60) as client,
        ):
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            named = {"Host": "desk.example"}
            assert (await client.get("/readyz", headers=named)).json() == {"status": "ready"}
            codes = [(await client.get("/mcp", headers=headers)).json()["code"] for _ in range(3)]
            assert codes == ["method_not_allowed"] * 2 + ["rate_limited"]
            limited.drain()
            assert (await client.get("/readyz")).json() == {"status": "draining"}
