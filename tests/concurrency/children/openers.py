"""A process that opens or creates many sessions by id, at the same time as other processes."""

from __future__ import annotations

import asyncio
import sys

import perdure
from perdure import user


def say(line: str) -> None:
    """Send a line to the parent process."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def work(address: str, name: str, count: int) -> None:
    async with perdure.open(address) as store:
        say("ready")
        sys.stdin.readline()
        for number in range(count):
            session = await store.open_or_create(f"user-{number}", metadata={"by": name})
            await session.append(user(name))
    say("done")


if __name__ == "__main__":
    asyncio.run(work(sys.argv[2], sys.argv[3], int(sys.argv[4])))
