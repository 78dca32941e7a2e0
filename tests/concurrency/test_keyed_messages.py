"""Several processes send a message with the same idempotency key: one turn answers it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

import perdure
from tests.fakes.chats import until
from tests.fakes.processes import child

SCRIPT = Path(__file__).parent / "children" / "keyed_sender.py"


def replies(address: str, runs: Path, processes: int) -> list[str]:
    """Return the outputs of processes that send the message at the same time."""
    with ExitStack() as stack:
        children = [stack.enter_context(child(SCRIPT, address, runs)) for _ in range(processes)]
        for each in children:
            each.tell()
        return [each.last_line() for each in children]


@pytest.mark.parametrize("store", ["sqlite:///{}/s.db", "jsonl:///{}/files"])
async def test_two_processes_get_the_reply_of_one_turn(tmp_path: Path, store: str) -> None:
    address, runs = store.format(tmp_path), tmp_path / "runs"
    assert replies(address, runs, 2) == ["1 The room is booked."] * 2
    assert replies(address, runs, 1) == ["1 The room is booked."]
    assert runs.read_text() == "booked\n"
    async with perdure.open(address) as opened:
        messages = await (await opened.open("shared")).messages()
    assert [each.text for each in messages if each.role == "user"] == ["Book a room."]


async def test_turn_of_a_killed_process_is_finished_by_the_next_call(tmp_path: Path) -> None:
    address, runs = f"sqlite:///{tmp_path}/s.db", tmp_path / "runs"

    async def is_booked() -> bool:
        return runs.exists()

    with child(SCRIPT, address, runs) as killed:  # at the end of the block
        killed.tell()
        async with asyncio.timeout(60):
            await until(is_booked)
    assert replies(address, runs, 1) == ["1 The room is booked."]
    async with perdure.open(address) as opened:
        messages = await (await opened.open("shared")).messages()
    assert [each.text for each in messages if each.role == "user"] == ["Book a room."]
