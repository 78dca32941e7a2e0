"""A consumer of the events of a ticket over HTTP; its state is a file of the events it has seen.

Called as ``event_consumer.py URL FILE TURNS``; ends once `TURNS` turns were completed. The program
uses only features that the guides describe.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TextIO

import httpx

import perdure

URL, FILE, TURNS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
RETRY_S = 0.02
SILENCE_S = 1.0
"""After this silence, the consumer connects again, because it may have lost the last event."""


def seen_before() -> list[dict[str, Any]]:
    """Return the events that the previous process stored, up to the last complete entry."""
    if not FILE.exists():
        return []
    lines = FILE.read_text(encoding="utf-8").splitlines(keepends=True)
    seen = [json.loads(line) for line in lines if line.endswith("\n")]
    while seen and seen[-1].get("more"):
        seen.pop()
    return seen


async def connect(after: int) -> AsyncIterator[dict[str, Any]]:
    """Yield the events after seq `after` that arrive over one connection."""
    await asyncio.sleep(RETRY_S)
    async with (
        httpx.AsyncClient(timeout=SILENCE_S) as client,
        client.stream("GET", URL, params={"after": after}) as response,
    ):
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def follow(seen: list[dict[str, Any]], file: TextIO) -> None:
    """Append the durable events after `seen` to `file`, until `TURNS` turns were completed."""
    done = sum(event["type"] == "session:turn_completed" for event in seen)
    follower = perdure.Follower(seen[-1]["sequenceNumber"] if seen else -1)
    broken = (httpx.TransportError, httpx.HTTPStatusError)
    async for event in follower.events(connect, broken=broken):
        if "sequenceNumber" not in event:
            continue
        file.write(f"{json.dumps(event)}\n")
        file.flush()
        done += event["type"] == "session:turn_completed"
        if done == TURNS:
            return


def main() -> None:
    """Follow the ticket from the last event that the previous process stored."""
    seen = seen_before()
    FILE.write_text("".join(f"{json.dumps(event)}\n" for event in seen), encoding="utf-8")
    with FILE.open("a", encoding="utf-8") as file:
        asyncio.run(follow(seen, file))


if __name__ == "__main__":
    main()
