"""Append numbered messages to the session in argument 2, one per commit, and report when done."""

from __future__ import annotations

import asyncio
import sys

import perdure


async def main(address: str, session: str, name: str, count: int) -> None:
    """Append `count` messages."""
    async with perdure.open(address) as store:
        handle = await store.open(session)
        for number in range(count):
            await handle.append(perdure.user(f"{name} {number}"))


asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
