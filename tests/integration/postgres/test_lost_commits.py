"""A running turn whose server is replaced by a server that has lost its last commits."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure import Agent, Runtime, tool
from perdure.client.clock import SystemClock
from perdure.errors import StoreBehind, StoreUnavailable
from perdure.models.scenario import CallTools, Reply, Say, Scenario, ScriptedCall, When
from perdure.models.scripted import ScriptedModel
from tests.fakes.postgres import PostgresServer, serving

pytestmark = pytest.mark.all_only


@pytest.fixture
def own() -> Iterator[PostgresServer]:
    """A server that a test can kill."""
    with serving(is_own=True) as server:
        yield server


def folder_of(server: PostgresServer) -> Path:
    with psycopg.connect(server.address) as db:
        row = db.execute("SHOW data_directory").fetchone()
    assert row is not None
    return Path(row[0])


def copy(source: Path, target: Path) -> None:
    """Copy a folder with the owners of its files, because the server can run as another user."""
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)


async def test_turn_fails_if_the_server_has_lost_commits(
    own: PostgresServer, tmp_path: Path
) -> None:
    data, replica = folder_of(own), tmp_path / "replica"

    async def restart() -> None:
        """Start the server, and make the store connect to it."""
        own.start()
        while True:
            with suppress(StoreUnavailable):
                await asyncio.gather(*(store.backend.state(chat.id) for _ in range(8)))
                return

    @tool(effect="read")
    async def lag() -> str:
        """Copy the server; the copy gets no later commit."""
        own.kill()
        copy(data, replica)
        await restart()
        return "copied"

    @tool(effect="read")
    async def fail_over() -> str:
        """Replace the server by the copy."""
        own.kill()
        shutil.rmtree(data)
        copy(replica, data)
        await restart()
        return "replaced"

    calls = [
        Reply(when=When(user_contains="go", round=n), steps=(CallTools((ScriptedCall(name),)),))
        for n, name in enumerate(("lag", "fail_over"), 1)
    ]
    scenario = Scenario(name="lagging", rules=(*calls, Reply(steps=(Say("done"),))))
    models = ScriptedModel(scenario, clock=SystemClock())
    agent = Agent("lagging", model="scripted:lagging", tools=[lag, fail_over])
    async with (
        perdure.open(own.new_database()) as store,
        Runtime(store, agents=[agent], models=models) as runtime,
    ):
        chat = await runtime.start(agent)
        assert (await chat.send("hello")).text == "done"
        async with asyncio.timeout(60):
            with pytest.raises(StoreBehind, match="it has lost entries") as behind:
                await chat.send("go")
        state = await store.backend.state(chat.id)
        assert (behind.value.stream, behind.value.actual) == (chat.id, state.head)
        assert behind.value.expected > state.head
        again = await runtime.resume(chat.id)
        assert again.turn is not None
        again.turn.abort()
        await again.turn
        assert (await again.send("hello")).text == "done"
