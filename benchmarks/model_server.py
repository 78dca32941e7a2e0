"""A local provider server: ``python -m benchmarks.model_server WIRE`` prints its URL.

The server answers every request with a few words, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys

from tests.fakes import anthropic_server, google_server, openai_server, responses_server
from tests.fakes.model_server import streaming
from tests.fakes.plans import Plan

_SERVERS = {
    "openai_chat": (openai_server.openai_server, openai_server.events),
    "openai_responses": (responses_server.responses_server, responses_server.events),
    "anthropic": (anthropic_server.anthropic_server, anthropic_server.events),
    "google": (google_server.google_server, google_server.events),
}


async def main(wire: str) -> None:
    """Serve."""
    serving, events = _SERVERS[wire]
    async with serving() as server:
        for _ in range(10):
            server.will(streaming(events(Plan(text="some words"))))
        print(server.url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
