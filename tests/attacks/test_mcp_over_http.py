"""An MCP client gets nothing by HTTP that its token does not allow.

Each tool and resource is called with the ids and the words of another person's session. First, the
calls with a token that has access prove that the calls find the data.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

import perdure
from perdure.session.ids import StreamId
from perdure.testing import ScriptedModel
from tests.fakes.served import Served, served

WORD = "xyzzyplugh"
AGENTS = [perdure.Agent(each, model="scripted:a") for each in ("a", "b")]

pytestmark = pytest.mark.full_only


class World:
    """A server with a session and a fact of bob (agent a), and a session of ana (agent b)."""

    def __init__(self, server: Served, session: str, fact: str) -> None:
        self.server = server
        self.session = session
        self.fact = fact

    def questions(self, name: str, fact: str) -> list[tuple[str, dict[str, Any]]]:
        """Calls of every tool about the sessions and the fact of the person `name`."""
        session, begun, entry = f"{name}-talk", f"{name}-", f"{name}-talk/0"
        return [
            ("recall", {"question": f"what is {WORD}", "limit": 50}),
            ("search_sessions", {"query": WORD, "limit": 50}),
            ("list_sessions", {"limit": 100}),
            ("list_sessions", {"query": WORD}),
            ("read_session", {"session": session}),
            ("read_session", {"session": begun}),
            ("read_session", {"session": f"{name}-erased"}),
            *(("read_entry", {"entry": f"{session}/{seq}"}) for seq in range(8)),
            ("list_facts", {"limit": 100}),
            ("remember", {"text": "Is mine.", "entry": entry}),
            ("correct", {"fact": fact, "text": "Is mine."}),
            ("forget", {"fact": fact}),
        ]

    async def told(self, token: str, name: str = "bob") -> str:
        """All data of the person `name` that a client with `token` receives."""
        fact = self.fact if name == "bob" else f"{self.fact}99"
        answers: list[str] = []
        async with client(self.server, token) as connected:
            tools = {tool.name for tool in (await connected.list_tools()).tools}
            answers.append(repr(await connected.list_resources()))
            for tool, arguments in self.questions(name, fact):
                if tool in tools:
                    answers.append(repr(await connected.call_tool(tool, arguments)))
            for uri in (f"{name}-talk", f"{name}-erased", f"{name}-"):
                try:
                    read = await connected.read_resource(f"perdure://sessions/{uri}")
                except Exception as error:  # noqa: BLE001 - what it says is what counts
                    answers.append(repr(error))
                else:
                    answers.append(repr(read))
        return "\n".join(answers).replace(fact, "FACT").replace(name, "NAME")

    async def state(self) -> object:
        """Return the data that only bob is allowed to change."""
        store = self.server.store
        head = (await store.backend.state(StreamId(self.session))).head
        return head, await store.memory.facts(subject="bob", include_past=True)


@asynccontextmanager
async def client(server: Served, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as connected,
    ):
        yield connected


@asynccontextmanager
async def world(folder: Path) -> AsyncGenerator[World]:
    models = ScriptedModel(["mine"] * 9)
    async with served(folder, agents=AGENTS, models=models) as server:
        bob = await server.client("admin", subject="bob")
        for id in ("bob-talk", "bob-erased"):
            new = {"text": f"hello {WORD}", "sessionId": id, "agent": "a", "title": f"is {WORD}"}
            (await bob.post("/v1/messages", json=new)).raise_for_status()
            await server.until(id, "idle")
        (await bob.delete("/v1/sessions/bob-erased")).raise_for_status()
        fact = await server.store.memory.remember(f"likes {WORD}", subject="bob", agent="a")
        ana = await server.client("write", subject="ana")
        mine = {"text": "Where is my train?", "sessionId": "ana-own", "agent": "b"}
        (await ana.post("/v1/messages", json=mine)).raise_for_status()
        await server.until("ana-own", "idle")
        yield World(server, "bob-talk", fact.id)


@pytest.mark.all_only
async def test_restricted_token_reads_and_changes_no_session_of_other_subjects(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        seeing = here.server.token("read")
        whole = await here.told(seeing)
        assert whole != await here.told(seeing, "zed")
        assert whole.count(WORD) > 8  # the questions do find it
        before = await here.state()
        for limits in (
            {"subject": "ana"},
            {"subject": ""},
            {"agent": "b"},
            {"agent": "b", "subject": "bob"},
            {"agent": "", "subject": "bob"},
        ):
            told = await here.told(here.server.token("write", **limits))
            assert WORD not in told, limits
            assert told == await here.told(here.server.token("write", **limits), "zed")
        assert await here.state() == before


@pytest.mark.parametrize(
    "limits", [{"namespace": "other"}, {"expires_at": 1}, {"revoked_at": 1}], ids=repr
)
async def test_token_that_is_not_valid_gets_no_answer(
    tmp_path: Path, limits: dict[str, Any]
) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with served(tmp_path) as server:
        token = server.token("admin", **limits)
        for given in (token, "pdr_none_00"):
            headers = {"Authorization": f"Bearer {given}"}
            got = await server.http.post("/mcp", json=call, headers=headers)
            assert (got.status_code, "tools" in got.text) == (401, False)


async def test_publishable_token_gets_no_answer(tmp_path: Path) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with served(tmp_path) as server:
        origin = "https://shop.example"
        token = server.token("write", agent="desk", origins=(origin,))
        headers = {"Authorization": f"Bearer {token}", "Origin": origin}
        got = await server.http.post("/mcp", json=call, headers=headers)
        assert (got.status_code, got.json()["code"]) == (403, "token_publishable")


async def test_token_revoked_between_two_calls_gets_no_further_answer(tmp_path: Path) -> None:
    async with served(tmp_path) as server:
        token = server.token("read")
        async with client(server, token) as connected:
            await connected.call_tool("list_sessions", {})
            server.tokens.revoke(server.tokens.records()[-1].id, 1)
            with pytest.raises(Exception, match="error response"):
                await connected.call_tool("list_sessions", {})
