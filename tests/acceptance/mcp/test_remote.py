"""MCP servers that are reached over HTTP: a real one, on loopback."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from perdure.client.agents.agent import Agent
from perdure.errors import McpUnavailable, ToolLost, ToolUnavailable
from perdure.models.scenario import CallTools, ScriptedCall
from perdure.secrets.vault import Vault
from perdure.tools.mcp.connection import Connection
from perdure.tools.mcp.server_tools import offer_tools
from perdure.tools.mcp.servers import McpServer
from perdure.tools.permissions import Permissions
from perdure.tools.spec import ToolCall
from tests.fakes.chats import MODEL, Stage, says
from tests.fakes.forked import Forked, forked
from tests.fakes.mcp_server import serve_http
from tests.fakes.mcp_servers import DEADLINE_S, pids, until
from tests.fakes.ports import reserved_port

HOME = Path(__file__).parent


def at(url: str, **settings: Any) -> McpServer:
    return McpServer(name="far", url=url, allow_local_endpoint=True, **settings)


@contextmanager
def listening(deeds: Path, port: int | None = None) -> Generator[tuple[str, Forked]]:
    """Run the server on loopback, at `port` if reserved; yield its address and its process."""
    with ExitStack() as stack:
        chosen = port or stack.enter_context(reserved_port())
        process = stack.enter_context(forked(serve_http, str(deeds), chosen))
        _wait_until_open(chosen)
        yield f"http://127.0.0.1:{chosen}/mcp", process


def _wait_until_open(port: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < deadline, "the server does not listen"
        time.sleep(0.02)


def connected(server: McpServer) -> Connection:
    return Connection(server, Vault({}, lambda account: None), HOME)


async def run(connection: Connection, tool: str, **args: Any) -> str:
    specs = {spec.name: spec for spec in (await offer_tools(connection)).tools}
    call = ToolCall("c", f"mcp_far_{tool}", args, "s", "k", 1, HOME)
    return (await specs[call.tool].run(call)).text


async def test_tools_of_a_remote_server_work_like_other_tools(tmp_path: Path) -> None:
    calls = CallTools((ScriptedCall("mcp_far_add", '{"a": 1, "b": 6}', id="c1"),))
    stage = Stage(says(calls), says("done"))
    with listening(tmp_path / "deeds") as (url, _):
        auto = Permissions(approval="auto")
        me = Agent("helper", model=MODEL, mcp_servers=[at(url)], permissions=auto)
        async with stage.runtime(me) as runtime:
            chat = await runtime.start(me)
            await chat.send("go")
            texts = [message.text for message in await chat.session.messages()]
    assert texts[-2].endswith("7")


@pytest.mark.all_only
async def test_killed_server_is_used_again_after_its_restart(
    tmp_path: Path,
) -> None:
    with reserved_port() as port:
        await killed_in_a_call(tmp_path / "deeds", port)


async def killed_in_a_call(deeds: Path, port: int) -> None:
    connection = connected(at(f"http://127.0.0.1:{port}/mcp"))
    with listening(deeds, port) as (_, process):
        tools = {spec.name: spec for spec in (await offer_tools(connection)).tools}
        hang = ToolCall("c", "mcp_far_hang", {}, "s", "k", 1, HOME)
        add = ToolCall("c", "mcp_far_add", {"a": 1, "b": 1}, "s", "k", 1, HOME)
        task = asyncio.ensure_future(tools["mcp_far_hang"].run(hang))
        await until(lambda: pids(deeds))
        process.kill()
        with pytest.raises(ToolLost, match="may have taken effect"):
            await task
    with pytest.raises(ToolUnavailable, match="no connection"):
        await tools["mcp_far_add"].run(add)
    with listening(deeds, port):
        assert (await tools["mcp_far_add"].run(add)).text == "2"
    with listening(deeds, port):  # it has forgotten the session: nothing was done, so once more
        assert (await tools["mcp_far_add"].run(add)).text == "2"
    await connection.close()


async def test_error_for_an_unreachable_server_does_not_contain_the_address() -> None:
    with reserved_port() as port:
        connection = connected(at(f"http://127.0.0.1:{port}/mcp"))
        with pytest.raises(McpUnavailable, match="no connection could be made") as told:
            await offer_tools(connection)
    assert "127.0.0.1" not in str(told.value)
    await connection.close()
