"""A session whose turn another process runs: following, steering, and refused calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import perdure
from perdure.errors import InvalidTransition, LeaseHeld
from perdure.testing import ScriptedModel

CHILD = Path(__file__).parent / "children" / "slow_turn.py"


@asynccontextmanager
async def slow_turn(address: str) -> AsyncGenerator[asyncio.subprocess.Process]:
    """Yield a child process as soon as the child runs a turn of the session ``shared``."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), address, stdin=pipe, stdout=pipe
    )
    try:
        assert child.stdout is not None
        assert await asyncio.wait_for(child.stdout.readline(), 60) == b"waiting\n"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


@perdure.tool(effect="read")
async def wait() -> str:
    """Wait no more."""
    return "here"


SAID = ("calls", "the end", "the end")  # by the other process

AGENT = perdure.Agent("slow", model="test:x", tools=[wait])


async def release(child: asyncio.subprocess.Process) -> None:
    assert child.stdin is not None
    child.stdin.write(b"there\n")
    await child.stdin.drain()


async def test_turn_of_another_process_is_followed_to_its_end(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/s.db"
    async with (
        slow_turn(address) as child,
        perdure.open(address) as store,
        perdure.Runtime(store, [AGENT], models=ScriptedModel([*SAID, "next"])) as runtime,
    ):
        chat = await runtime.resume("shared")
        assert chat.turn is not None
        with pytest.raises(LeaseHeld, match=str(child.pid)):
            chat.send("more")
        with pytest.raises(LeaseHeld, match=str(child.pid)):
            await chat.abort()
        await chat.steer("be brief")
        await chat.follow_up("and then?")
        await release(child)
        reply = await asyncio.wait_for(chat.turn, 60)
        assert (reply.end, reply.text) == ("stop", "the end")
        assert await child.wait() == 0
        said = [each.text for each in await chat.session.messages() if each.role == "user"]
        assert said == ["go", "be brief", "and then?"]
        assert (await chat.send("hello")).text == "next"


async def test_process_that_follows_a_turn_continues_it_after_the_owner_dies(
    tmp_path: Path,
) -> None:
    address = f"sqlite:///{tmp_path}/s.db"
    async with (
        slow_turn(address) as child,
        perdure.open(address) as store,
        perdure.Runtime(store, [AGENT], models=ScriptedModel(["calls", "continued"])) as runtime,
    ):
        chat = await runtime.resume("shared")
        assert chat.turn is not None
        assert chat.turn.held is not None
        child.kill()
        assert (await asyncio.wait_for(chat.turn, 60)).text == "continued"
        results = [each.text for each in await chat.session.messages() if each.role == "tool"]
        assert results == ["here"]


async def test_closing_a_runtime_does_not_end_a_turn_of_another_process(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/s.db"
    async with slow_turn(address) as child, perdure.open(address) as store:
        async with perdure.Runtime(store, [AGENT], models=ScriptedModel([])) as runtime:
            chat = await runtime.resume("shared")
            assert await runtime.resume_all() == []
        await release(child)
        assert await child.wait() == 0
        with pytest.raises(InvalidTransition):
            await chat.follow_up("too late")
        assert (await chat.session.messages())[-1].text == "the end"
