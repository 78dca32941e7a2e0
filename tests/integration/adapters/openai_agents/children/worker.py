"""One of several processes on one session of the SDK: the process adds, pops or clears items.

worker.py ROLE ADDRESS NAME COUNT      prints the texts that it added or popped, and "cleared"

The process begins when it reads a line from standard input, so that all begin together.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).resolve().parents[5]))

import perdure
from perdure.adapters.openai_agents import PerdureSession

SESSION = "shared"


async def work(session: PerdureSession, role: str, name: str, count: int) -> list[str]:
    """Do the work of `role`."""
    done: list[str] = []
    for number in range(count):
        if role == "add":
            text = f"{name}-{number}"
            await session.add_items([{"role": "user", "content": text}])
            done.append(text)
        elif role == "clear":
            await session.clear_session()
        elif (item := await session.pop_item()) is not None:
            done.append(cast("dict[str, Any]", item)["content"])
    return done


async def main(role: str, address: str, name: str, count: int) -> None:
    async with perdure.open(address, durability="normal") as store:
        session = PerdureSession(SESSION, store)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        sys.stdout.write(" ".join(await work(session, role, name, count)) + "\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
