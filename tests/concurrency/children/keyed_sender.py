"""Send one message with a key to the session "shared" in the store at argv 1; print the reply.

The process sends when a line arrives. Each run of the tool adds a line to the file at argv 2.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel


async def main(address: str, runs: Path) -> None:
    @perdure.tool(effect="external", on_unknown="retry")
    async def book() -> str:
        """Book a room."""
        with runs.open("a") as file:
            file.write("booked\n")
        await asyncio.sleep(0.3)
        return "booked"

    agent = perdure.Agent("desk", model="test:x", tools=[book])
    script = ScriptedModel([assistant(tool_call("c1", "book", {})), "The room is booked."])
    async with (
        perdure.open(address) as store,
        perdure.Runtime(store, [agent], models=script) as runtime,
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        session = await store.open_or_create("shared")
        chat = await runtime.resume(session.id, "desk")
        reply = await chat.send("Book a room.", idempotency_key="request-1")
        sys.stdout.write(f"{reply.turn} {reply.text}\n")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
