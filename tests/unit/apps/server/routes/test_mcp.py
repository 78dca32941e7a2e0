"""MCP over HTTP, with the client of the MCP library."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from perdure import assistant, user
from tests.fakes.served import Served, served

pytestmark = pytest.mark.full_only

READING = {
    *("recall", "search_sessions", "list_sessions", "read_session", "read_entry", "list_facts"),
}
WRITING = {"remember", "correct", "forget"}


@asynccontextmanager
async def client(server: Served, token: str) -> AsyncGenerator[Client]:
    """Return a client that signs in with `token`."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as connected,
    ):
        yield connected


async def asked(connected: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    """Return the text of an answer, and whether the answer is an error."""
    result: Any = await connected.call_tool(tool, arguments)
    return "\n".join(part.text for part in result.content), bool(result.is_error)


async def test_mcp_client_can_read_search_and_remember(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        trip = await server.store.create(title="Trip to Lisbon", id="trip")
        await trip.append(user("Which hotel did we choose?"), assistant("The Aurora."))
        async with client(server, server.token("write")) as connected:
            assert {tool.name for tool in (await connected.list_tools()).tools} == READING | WRITING
            assert "The Aurora" in (await asked(connected, "recall", question="which hotel"))[0]
            assert "The Aurora" in (await asked(connected, "search_sessions", query="Aurora"))[0]
            assert "The Aurora" in (await asked(connected, "read_session", session="trip"))[0]
            (listed,) = (await connected.list_resources()).resources
            assert str(listed.uri) == "perdure://sessions/trip"
            await asked(connected, "remember", text="Likes the Aurora.")
            assert "Likes the Aurora" in (await asked(connected, "list_facts"))[0]
        async with client(server, server.token("read")) as connected:
            assert {tool.name for tool in (await connected.list_tools()).tools} == READING
            text, is_error = await asked(connected, "remember", text="x")
            assert is_error, text


async def test_only_post_requests_are_accepted(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        for method in ("GET", "DELETE", "PUT"):
            got = await server.http.request(method, "/mcp")
            assert (got.status_code, got.json()["code"]) == (405, "method_not_allowed")


async def test_mcp_request_from_a_page_of_another_site_is_refused(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        for origin, status in (("http://evil.example", 403), (server.url, 200)):
            headers = {"Origin": origin, "Accept": "application/json, text/event-stream"}
            got = await server.http.post("/mcp", json=call, headers=headers)
            assert got.status_code == status, got.text
