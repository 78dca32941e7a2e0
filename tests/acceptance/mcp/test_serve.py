"""``perdure mcp serve``, called by the client of the MCP library over stdin and stdout."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

import perdure
from perdure import assistant, user
from perdure.apps.mcp_server.history import Scope
from perdure.apps.mcp_server.server import server_of
from tests.acceptance.cli.conftest import World

READING = {
    *("recall", "search_sessions", "list_sessions", "read_session", "read_entry", "list_facts"),
}
WRITING = {"remember", "correct", "forget"}
Serving = Callable[..., AbstractAsyncContextManager[Client]]
KEY = "sk-ant-api03-" + "A1b2C3d4" * 12


@pytest.fixture
async def address(tmp_path: Path) -> str:
    """A store with a session without a subject, a session of Ana, and a long session."""
    store_address = f"sqlite:///{tmp_path / 'store.db'}"
    async with perdure.open(store_address) as store:
        own = await store.create(title="Trip to Lisbon", id="trip")
        await own.append(
            user("Which hotel did we choose? My key is " + KEY),
            assistant("The Aurora, near the river."),
        )
        about_ana = await store.create(title="About Ana", id="ana", subject="ana")
        await about_ana.append(user("Ana is allergic to nuts, says her hotel."))
        long = await store.create(title="Long", id="long")
        await long.append_many([user(f"line {number} " + "word " * 300) for number in range(120)])
    return store_address


@asynccontextmanager
async def served(address: str, *options: str) -> AsyncGenerator[Client]:
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "perdure", "mcp", "serve", "--store", address, *options],
        env={**os.environ},
    )
    async with Client(stdio_client(parameters)) as client:
        yield client


@asynccontextmanager
async def served_here(address: str, *options: str) -> AsyncGenerator[Client]:
    """Serve the store in this process, as the command with the option ``--allow-write`` or none.

    Serving in this process takes a tenth of the time of a new process.
    """
    is_writable = options == ("--allow-write",)
    async with perdure.open(address) as store:
        server = await server_of(store, Scope(None, is_all=False), is_writable=is_writable)
        async with Client(server) as client:
            yield client


EACH_WAY = pytest.mark.parametrize(
    "serving", [served_here, pytest.param(served, marks=pytest.mark.all_only)]
)
"""Serve in this process, and in `make test-all` also as a new process."""


async def asked(client: Client, tool: str, **arguments: Any) -> tuple[str, bool]:
    """Return the text of an answer, and whether the answer is an error."""
    result: Any = await client.call_tool(tool, arguments)
    return "\n".join(part.text for part in result.content), bool(result.is_error)


async def test_mcp_client_can_recall_search_and_read(address: str) -> None:
    async with served(address) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == READING
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
        assert all(tool.description for tool in tools)

        recalled, _ = await asked(client, "recall", question="What hotel was it?")
        found, _ = await asked(client, "search_sessions", query="river aurora")
        listed, _ = await asked(client, "list_sessions")
        read, _ = await asked(client, "read_session", session="tri")
        entry, _ = await asked(client, "read_entry", entry="trip/1")
        facts, _ = await asked(client, "list_facts")
        whole, _ = await asked(client, "read_entry", entry="trip/0")
        _, is_hidden = await asked(client, "read_session", session="ana")

    assert is_hidden
    assert KEY not in whole
    assert "The Aurora, near the river." in recalled
    assert "session trip" in found
    assert "Trip to Lisbon" in listed
    assert "Which hotel" in read
    assert read.index("Which hotel") < read.index("The Aurora")
    assert entry == "The Aurora, near the river."
    assert facts == "No facts are remembered."


@EACH_WAY
async def test_client_sees_no_data_out_of_its_scope_and_no_secret(
    address: str, serving: Serving
) -> None:
    async with perdure.open(address) as store:
        await store.create(title=f"Use\n{KEY}", id="titled")
    async with serving(address) as client:
        answers = [
            await asked(client, "recall", question="Who is allergic? Which hotel, which key?"),
            await asked(client, "search_sessions", query="hotel"),
            await asked(client, "list_sessions"),
            await asked(client, "read_session", session="trip"),
            await asked(client, "read_entry", entry="trip/0"),
            await asked(client, "read_session", session="ana"),
            await asked(client, "read_entry", entry="ana/0"),
        ]
        resources: Any = await client.list_resources()
    assert [is_error for _, is_error in answers] == [False] * 5 + [True] * 2
    text = "\n".join(answer for answer, _ in answers)
    assert KEY not in text
    assert "nuts" not in text
    assert "About Ana" not in text
    assert {resource.name for resource in resources.resources} == {"trip", "long", "titled"}
    (title,) = [each.title for each in resources.resources if each.name == "titled"]
    assert KEY not in title
    assert title.startswith("Use ")  # on one line


@pytest.mark.all_only
async def test_client_limited_to_one_subject_sees_only_data_of_that_subject(address: str) -> None:
    async with served(address, "--subject", "ana") as client:
        recalled, _ = await asked(client, "recall", question="Who is allergic to nuts?")
        listed, _ = await asked(client, "list_sessions")
    assert "allergic to nuts" in recalled
    assert "Lisbon" not in recalled + listed


@pytest.mark.all_only
async def test_long_answers_are_cut_and_say_how_to_read_the_rest(address: str) -> None:
    async with served(address) as client:
        read, _ = await asked(client, "read_session", session="long", last=10**9)
        earlier, _ = await asked(client, "read_session", session="long", before="long/5")
        wrong, is_error = await asked(client, "read_entry", entry="long/999")
        resource: Any = await client.read_resource("perdure://sessions/long")
    assert len(read) < 25_000
    assert "line 119" in read
    assert "earlier messages left out" in read
    assert "line 4 " in earlier
    assert "line 5 " not in earlier
    assert is_error
    assert "long/999" in wrong
    assert "line 119" in resource.contents[0].text


@EACH_WAY
async def test_mcp_client_can_write_only_with_permission(address: str, serving: Serving) -> None:
    async with serving(address, "--allow-write") as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == READING | WRITING
        told, _ = await asked(client, "remember", text="The hotel is the Aurora.")
        fact = told.removeprefix("Remembered as ").rstrip(".")
        told, _ = await asked(client, "correct", fact=fact, text="The hotel is the Borealis.")
        newer = told.removeprefix("Corrected as ").rstrip(".")
        facts, _ = await asked(client, "list_facts")
        assert "Borealis" in facts
        assert "Aurora" not in facts
        assert await asked(client, "forget", fact=newer) == ("Forgotten.", False)
        assert (await asked(client, "list_facts"))[0] == "No facts are remembered."
        assert (await asked(client, "forget", fact="nothing/1"))[1]


def test_conflicting_options_or_an_unknown_embedder_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    for options in (
        ("--subject", "a", "--all-subjects"),
        ("--all-subjects", "--allow-write"),
        ("--embedder", "static:missing"),
    ):
        assert world.run("mcp", "serve", *options).code == 2


@pytest.mark.all_only
def test_interrupted_mcp_server_ends_immediately(address: str) -> None:
    command = (sys.executable, "-m", "perdure", "mcp", "serve", "--store", address)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdin.flush()
        assert server.stdout.readline()
        server.send_signal(signal.SIGINT)
        assert server.wait(60) == -signal.SIGINT
