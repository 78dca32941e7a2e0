"""Append messages to the stream that the tests use, each in its own commit."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from perdure.client.clock import SystemClock, system_random
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.streams import say


async def main(path: Path, count: int) -> None:
    """Append `count` messages."""
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    for number in range(count):
        await say(store, str(number))
    await store.close()


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
