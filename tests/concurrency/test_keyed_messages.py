"""A message with an idempotency key that several processes send: one turn answers it."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import perdure
from tests.fakes.chats import until

CHILD = "tests.concurrency.children.keyed_sender"


async def started(address: str, runs: Path) -> asyncio.subprocess.Process:
    """A process that sends the message once it gets a line."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", CHILD, address, str(runs)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert child.stdout is not None
    assert await child.stdout.readline() == b"ready\n"
    return child


async def replies(children: list[asyncio.subprocess.Process]) -> list[str]:
    """Return the outputs of the processes after they send the message at the same time."""
    ended = await asyncio.gather(*(child.communicate(b"\n") for child in children))
    return [out.decode().strip() for out, _ in ended]


@pytest.mark.parametrize("store", ["sqlite:///{}/s.db", "jsonl:///{}/files"])
async def test_two_processes_get_the_reply_of_one_turn(tmp_path: Path, store: str) -> None:
    address, runs = store.format(tmp_path), tmp_path / "runs"
    async with asyncio.timeout(60):
        children = [await started(address, runs) for _ in range(2)]
        assert await replies(children) == ["1 The room is booked."] * 2
        assert await replies([await started(address, runs)]) == ["1 The room is booked."]
    assert runs.read_text() == "booked\n"
    async with perdure.open(address) as opened:
        messages = await (await opened.open("shared")).messages()
    assert [each.text for each in messages if each.role == "user"] == ["Book a room."]


async def test_turn_of_a_killed_process_is_finished_by_the_next_call(tmp_path: Path) -> None:
    address, runs = f"sqlite:///{tmp_path}/s.db", tmp_path / "runs"
    async with asyncio.timeout(60):
        child = await started(address, runs)

        async def is_booked() -> bool:
            return runs.exists()

        assert child.stdin is not None
        child.stdin.write(b"\n")
        await child.stdin.drain()
        await until(is_booked)
        child.kill()
        await child.wait()
        assert await replies([await started(address, runs)]) == ["1 The room is booked."]
    async with perdure.open(address) as opened:
        messages = await (await opened.open("shared")).messages()
    assert [each.text for each in messages if each.role == "user"] == ["Book a room."]
