"""``perdure serve`` as a real process with a program's agents: killed, started again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.fakes.forked_commands import started_command

PROGRAM = '''
import asyncio, pathlib, perdure
from perdure.testing import ScriptedModel

HERE = pathlib.Path(__file__).parent

@perdure.tool(effect="read")
async def look(name: str) -> str:
    """Look something up."""
    with (HERE / "looked").open("a") as book:
        book.write(name)
    while (HERE / "slow").exists():
        await asyncio.sleep(0.01)
    return f"{name} is here"

def desk(store):
    call = perdure.assistant(perdure.tool_call("c1", "look", {"name": "heron"}))
    model = ScriptedModel([call, "It is here"] * 2)
    agent = perdure.Agent("desk", model="scripted:desk", tools=[look])
    return perdure.Runtime(store, [agent], models=model)
'''


def variables_of(folder: Path) -> dict[str, str]:
    """Return the environment of a server in `folder`."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "PERDURE_STORE": f"sqlite:///{folder / 'desk.db'}",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


@asynccontextmanager
async def serving(
    folder: Path, *options: str, factory: str = "shop:desk", **variables: str
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, str]]:
    """The server of the program in `folder`, and the address that it prints.

    The errors of the server are in the file ``stderr`` of the folder.
    """
    environment = {**variables_of(folder), **variables}
    command = (sys.executable, "-m", "perdure", "serve", factory, "--port", "0", *options)
    with (folder / "stderr").open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=errors
        )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode().strip()
        yield process, line
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def signed_in(address: str) -> AsyncGenerator[httpx.AsyncClient]:
    """A client that signed in with the one-time code of `address`."""
    url, _, code = address.partition("/#code=")
    async with httpx.AsyncClient(base_url=url, headers={"X-Perdure": "1"}, timeout=60) as client:
        (await client.post("/v1/sign-in", json={"code": code})).raise_for_status()
        yield client


async def test_turn_of_killed_server_continues_after_restart(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM)
    (tmp_path / "slow").touch()
    words = ("serve", "shop:desk", "--port", "0")
    with started_command(words, variables_of(tmp_path), tmp_path) as first:
        address = (await asyncio.to_thread(first.line)).decode().strip()
        async with signed_in(address) as client:
            sent = await client.post("/v1/messages", json={"text": "Where is the heron?"})
        session = sent.json()["sessionId"]
        cookies = dict(client.cookies)
        async with asyncio.timeout(60):
            while not (tmp_path / "looked").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.01)
        first.kill()
    (tmp_path / "slow").unlink()
    async with serving(tmp_path, "--json") as (process, printed):
        url = json.loads(printed)["url"].partition("/#code=")[0]
        async with httpx.AsyncClient(base_url=url, cookies=cookies, timeout=60) as client:
            events = f"/v1/sessions/{session}/events"
            async with client.stream("GET", events) as stream:
                sent = ""
                # An event of the log: live text arrives before its message is stored.
                async for line in stream.aiter_lines():
                    sent += line
                    if line.startswith("data: ") and "session:turn_completed" in line:
                        break
            assert "It is here" in sent
            shown = (await client.get(f"/v1/sessions/{session}/messages")).json()["items"]
            assert [each["role"] for each in shown] == ["user", "assistant", "tool", "assistant"]
            assert "It is here" in json.dumps(shown[-1])
            turns = (await client.get(f"/v1/sessions/{session}/turns")).json()["items"]
            assert len(turns) == 1
            assert json.dumps(turns).count("heron") == 2
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0
    assert not (tmp_path / "desk.db-wal").exists()


LISTED = """
def desks(store):
    return [perdure.Agent("desk", model="scripted:desk")]
"""


@pytest.mark.all_only
async def test_server_prints_the_rule_that_ends_idle_sessions(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(PROGRAM + LISTED)
    told = {
        ("shop:desks",): "a session ends after 30 minutes without a message; imported sessions",
        ("shop:desks", "--idle-minutes", "0"): "sessions never end as idle (--idle-minutes 0).",
        ("shop:desk",): "shop:desk decides when idle sessions end",
    }
    for (factory, *options), line in told.items():
        async with serving(tmp_path, *options, factory=factory) as (process, address):
            assert address.startswith("http://")
            process.send_signal(signal.SIGTERM)
            await asyncio.wait_for(process.wait(), 60)
        assert line in (tmp_path / "stderr").read_text()
