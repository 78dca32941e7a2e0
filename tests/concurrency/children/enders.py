"""A process that ends many sessions, or opens their store, at the same time as others."""

from __future__ import annotations

import asyncio
import sys

import perdure


def say(line: str) -> None:
    """Send a line to the parent process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def end_all(address: str, count: int) -> None:
    async with perdure.open(address) as store:
        sessions = [await store.open(f"s{number}") for number in range(count)]
        say("ready")
        sys.stdin.readline()
        for session in sessions:
            await session.end()
    say("done")


async def open_once(address: str) -> None:
    say("ready")
    sys.stdin.readline()
    async with perdure.open(address) as store:
        await store.memory.episodes()
    say("done")


if __name__ == "__main__":
    role, address, count = sys.argv[1], sys.argv[2], int(sys.argv[4])
    asyncio.run(end_all(address, count) if role == "end" else open_once(address))
