"""Fill a store until it is full, then append a small entry; print the result."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from perdure.client.clock import SystemClock, system_random
from perdure.errors import PerdureError
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.streams import create, say


async def main(path: Path) -> None:
    """Append 150 kB at a time, so that a small commit still fits when a large one fails."""
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    await create(store)
    appended = 0
    try:
        while appended < 100:
            await say(store, "x" * 150_000)
            appended += 1
    except PerdureError as error:
        sys.stdout.write(f"{error.code}\n")
    await say(store, "small")
    sys.stdout.write("appended\n")
    verification = await store.maintenance.verify()
    is_whole = verification.is_ok and verification.entries == appended + 1
    sys.stdout.write("ok" if is_whole else str(verification))
    await store.close()


asyncio.run(main(Path(sys.argv[1])))
