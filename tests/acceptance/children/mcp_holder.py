"""Start an MCP server, then wait until this process is ended: ``mcp_holder.py DEEDS``."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

from perdure.client.agents.agent import Agent
from tests.fakes.chats import MODEL, Stage
from tests.fakes.mcp_servers import local


async def main(deeds: Path) -> None:
    me = Agent("helper", model=MODEL, mcp_servers=[local(deeds)])
    async with Stage().runtime(me) as runtime:
        await runtime.start(me)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    # A shell that runs the tests in the background leaves it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    asyncio.run(main(Path(sys.argv[1])))
