"""Open a store as a user with read access only; print the result of each attempt."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from perdure.client.clock import SystemClock, system_random
from perdure.errors import PerdureError
from perdure.stores.sqlite.migrate import latest_version
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.streams import S, create, say

NOBODY = 65_534
LATER = ("verify", "retention.erase_records", "retention.erase")
THREADS = "concurrent.futures.thread"
"""The first call in another thread loads this module, maybe from a folder that only root reads."""


def say_line(line: object) -> None:
    sys.stdout.write(f"{line}\n")


async def main(path: Path) -> None:
    try:
        store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    except PerdureError as error:
        say_line(error.code)
        return
    say_line(len(await store.entries(S)))
    say_line((await store.maintenance.verify()).is_ok)
    try:
        await say(store, "no")
    except PerdureError as error:
        say_line(error.code)
    await store.close()


def become_nobody() -> None:
    """Drop root's rights, since root can write everything; load needed modules from disk first."""
    latest_version()
    for module in LATER:
        importlib.import_module(f"perdure.stores.sqlite.{module}")
    importlib.import_module(THREADS)
    assert create is not None
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)


if __name__ == "__main__":
    become_nobody()
    asyncio.run(main(Path(sys.argv[1])))
