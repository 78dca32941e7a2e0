"""Index a store and be killed at each write and fsync, one after the other.

FOLDER/original.db is a store without an index. `kill_at_each` makes a copy for every STEP-th
operation, whose indexing was killed at that operation.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from perdure.client.clock import SystemClock, system_random
from perdure.session.search.parts import sizes
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_vfs import faulty_vfs, killing_at


async def reindex(path: Path) -> None:
    sizes.BATCH_ROWS = 600
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    await store.search.reindex()
    await store.close()


def kill_at_each(folder: Path, step: int) -> None:
    def live(operation: int) -> None:
        path = folder / f"{operation:04}.db"
        shutil.copyfile(folder / "original.db", path)
        with faulty_vfs() as layer:
            layer.plan = killing_at(operation)
            asyncio.run(reindex(path))

    die_at_each(live, step)
