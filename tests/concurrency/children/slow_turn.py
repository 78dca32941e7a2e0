"""Start a session in the store at argv 1 and run a turn until a line arrives or a kill."""

from __future__ import annotations

import asyncio
import sys

import perdure
from perdure import assistant, tool_call
from perdure.testing import ScriptedModel


@perdure.tool(effect="read")
async def wait() -> str:
    """Wait for a line."""
    sys.stdout.write("waiting\n")
    sys.stdout.flush()
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def main(address: str) -> None:
    agent = perdure.Agent("slow", model="test:x", tools=[wait])
    script = ScriptedModel([assistant(tool_call("c1", "wait", {})), "the end", "the end"])
    async with (
        perdure.open(address) as store,
        perdure.Runtime(store, [agent], models=script) as runtime,
    ):
        chat = await runtime.start("slow", id="shared")
        await chat.send("go")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
