"""hold.py PATH: keep a store open until the input ends; input line 1: the key or ``plain``.

Prints ``open`` after reading the store and ``written`` after a write that follows the second line.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from perdure.client.clock import SystemClock, system_random
from perdure.stores.key import StoreKey
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.planted import FIRST


async def main() -> None:
    given = sys.stdin.readline().strip()
    key = None if given == "plain" else StoreKey.of(given)
    path = Path(sys.argv[1])
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random, key=key)
    await store.state(FIRST)
    os.write(1, b"open\n")
    await asyncio.to_thread(sys.stdin.readline)
    await store.acquire_lease(FIRST, "holder", 1)
    os.write(1, b"written\n")
    await store.close()


asyncio.run(main())
