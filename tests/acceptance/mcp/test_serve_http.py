"""``perdure mcp serve --http`` as a real process, called by the client of the MCP library."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from msgspec.structs import replace

import perdure
from perdure import assistant, user
from perdure.server import Role, TokenFile, TokenRecord
from tests.acceptance.mcp.test_serve import READING, WRITING, asked
from tests.fakes.forked_commands import started_command
from tests.fakes.ports import reserved_port

WORD = "xyzzyplugh"
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class World:
    """A store with data of bob, of ana and of another namespace, and tokens for its server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = f"sqlite:///{folder / 'store.db'}"
        self.tokens = TokenFile(folder / "tokens.json")

    async def fill(self) -> None:
        """Create two sessions and a fact about bob, and a session in the namespace "other"."""
        async with perdure.open(self.address) as store:
            bob = await store.create(title=f"Bob's {WORD}", id="bob", subject="bob")
            await bob.append(user(f"What is {WORD}?"), assistant(f"{WORD} is a spell."))
            await store.memory.remember(f"Likes {WORD}.", subject="bob")
            ana = await store.create(title="Trip to Lisbon", id="ana", subject="ana")
            await ana.append(user("Which hotel?"), assistant("The Aurora."))
        async with perdure.open(self.address, namespace="other") as store:
            elsewhere = await store.create(title=f"Other {WORD}", id="elsewhere", subject="ana")
            await elsewhere.append(user(f"hotel {WORD} elsewhere"))

    def token(self, role: Role = "read", **limits: Any) -> str:
        """Create and return a token; `limits` contains more fields of the token's record."""
        id = f"t{len(self.tokens.records())}"
        limits = {"namespace": "default", **limits}
        record = replace(TokenRecord(id=id, hash="", role=role, created_at=0), **limits)
        return self.tokens.create(record, os.urandom(32))

    @asynccontextmanager
    async def served(
        self, *options: str, port: int = 0
    ) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
        """Run a server of the store; yield its process and the address that it prints."""
        words = ("mcp", "serve", "--http", "--port", str(port), "--store", self.address)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "perdure", *words, *options),
            env={**os.environ, "PERDURE_TOKENS": str(self.tokens.path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            line = await asyncio.wait_for(process.stdout.readline(), 60)
            yield process, line.decode().strip()
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()

    @asynccontextmanager
    async def forked(self, *options: str) -> AsyncGenerator[str]:
        """Run a server of the store in a fork; yield the line that it prints."""
        words = ("mcp", "serve", "--http", "--port", "0", "--store", self.address, *options)
        environment = {**os.environ, "PERDURE_TOKENS": str(self.tokens.path)}
        with started_command(words, environment, self.folder) as process:
            yield (await asyncio.to_thread(process.line)).decode()


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.fill()
    return made


@asynccontextmanager
async def client(url: str, token: str) -> AsyncGenerator[Client]:
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(url, http_client=http)) as connected,
    ):
        yield connected


async def tools_of(connected: Client) -> set[str]:
    return {tool.name for tool in (await connected.list_tools()).tools}


async def everything(connected: Client) -> str:
    """Return the answers of all tools about bob and about the other namespace."""
    answers = [repr(await connected.list_resources())]
    for tool, arguments in (
        ("recall", {"question": f"what is {WORD}, which hotel?", "limit": 50}),
        ("search_sessions", {"query": WORD, "limit": 50}),
        ("list_sessions", {"limit": 100}),
        ("list_facts", {"limit": 100}),
        *(("read_session", {"session": id}) for id in ("bob", "b", "elsewhere", "e")),
        *(("read_entry", {"entry": id}) for id in ("bob/0", "bob/1", "elsewhere/0")),
    ):
        answers.append(repr(await connected.call_tool(tool, arguments)))
    return "\n".join(answers)


async def test_token_limits_the_data_and_actions_of_an_mcp_client(world: World) -> None:
    async with world.served() as (_, url):
        async with client(url, world.token("admin", subject="ana")) as ana:
            assert await tools_of(ana) == READING  # no role writes without --allow-write
            assert "The Aurora" in (await asked(ana, "recall", question="which hotel"))[0]
            assert WORD not in await everything(ana)
        async with client(url, world.token(subject="bob")) as bob:
            assert (await everything(bob)).count(WORD) > 6  # the questions do find a leak
        async with client(url, world.token()) as whole:
            found = await everything(whole)
            assert "is a spell" in found
            assert "hotel xyzzyplugh elsewhere" not in found
        await assert_refused(world, url)
    async with world.forked("--namespace", "other", "--allow-write", "--json") as printed:
        url = json.loads(printed)["url"]
        async with client(url, world.token("write", namespace="other")) as writer:
            assert "hotel xyzzyplugh elsewhere" in await everything(writer)
            assert await tools_of(writer) == READING | WRITING
            told, is_error = await asked(writer, "remember", text="The hotel is the Aurora.")
            assert not is_error, told
        async with client(url, world.token(namespace="other")) as reader:
            assert await tools_of(reader) == READING
            assert (await asked(reader, "remember", text="Is mine."))[1]
            assert "Is mine" not in (await asked(reader, "list_facts"))[0]


async def assert_refused(world: World, url: str) -> None:
    """Check that requests without a valid client token get an error and no data of the store."""
    good = {"Authorization": f"Bearer {world.token()}"}
    wrong = [
        {},
        {"Authorization": "Bearer pdr_none_00"},
        *(
            {"Authorization": f"Bearer {world.token('admin', **limits)}"}
            for limits in ({"expires_at": 1}, {"revoked_at": 1}, {"namespace": "other"})
        ),
    ]
    port = url.removesuffix("/mcp").rpartition(":")[2]
    async with httpx.AsyncClient(headers=ACCEPT, timeout=60) as http:
        for headers in wrong:
            got = await http.post(url, json=LIST, headers=headers)
            assert (got.status_code, "recall" in got.text) == (401, False), headers
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": f"evil.example:{port}"}, 421),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://127.0.0.1:{port}"}, 200),
        ):
            got = await http.post(url, json=LIST, headers={**good, **headers})
            assert (got.status_code, "recall" in got.text) == (status, status == 200), headers
        for path in ("/", "/v1/sessions", "/v1/sign-in", "/console/app.js"):
            got = await http.get(url.removesuffix("/mcp") + path, headers=good)
            assert (got.status_code, got.json()["code"]) == (404, "route_not_found"), path
            assert got.json()["detail"].endswith("; the MCP server is at /mcp")
        for got in (
            await http.post(url, content=b"[" * 5_000_000, headers=good),
            await http.post(url, content=endless(), headers=good),
        ):
            assert (got.status_code, "recall" in got.text) == (413, False)
        assert (await http.post(url, json=LIST, headers=good)).status_code == 200
        assert (await http.get(url.replace("/mcp", "/readyz"))).json() == {"status": "ready"}


async def endless() -> AsyncGenerator[bytes]:
    """A body of undeclared size, larger than the server ever reads."""
    for _ in range(200):
        yield b" " * 65_536


@pytest.mark.all_only
async def test_mcp_client_survives_a_server_restart_but_not_token_revocation(world: World) -> None:
    token = world.token()
    headers = {**ACCEPT, "Authorization": f"Bearer {token}"}
    with reserved_port() as port:
        async with (
            httpx.AsyncClient(headers=headers, timeout=60) as http,
            world.served(port=port) as (process, url),
            client(url, token) as connected,
        ):
            assert "Lisbon" in (await asked(connected, "list_sessions"))[0]
            process.send_signal(signal.SIGKILL)
            await process.wait()
            async with world.served(port=port) as (again, _):
                assert "Lisbon" in (await asked(connected, "list_sessions"))[0]
                assert (await http.post(url, json=LIST)).status_code == 200
                world.tokens.revoke("t0", 1)
                with pytest.raises(Exception, match="error response"):
                    await connected.call_tool("list_sessions", {})
                assert (await http.post(url, json=LIST)).status_code == 401
                again.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(again.wait(), 60) in (0, -signal.SIGTERM, 143)
