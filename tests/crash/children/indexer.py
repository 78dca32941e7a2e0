"""Index a store, and be killed at each write and fsync of it, one after the other.

indexer.py FOLDER   FOLDER/original.db is a store that nobody has searched; for each operation there
                    is a copy of it, whose indexing was killed there
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from perdure.client.clock import SystemClock, system_random
from perdure.session.search.parts import batching
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.faulty_vfs import faulty_vfs, killing_at

MOST_OPERATIONS = 2_000


async def reindex(path: Path) -> None:
    batching.BATCH_ROWS = 600
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    await store.reindex()
    await store.close()


def kill_at_each(folder: Path) -> None:
    for operation in range(1, MOST_OPERATIONS):
        path = folder / f"{operation:04}.db"
        shutil.copyfile(folder / "original.db", path)
        child = os.fork()
        if child == 0:
            with faulty_vfs() as layer:
                layer.plan = killing_at(operation)
                asyncio.run(reindex(path))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
            return
    raise AssertionError("indexing should end")


if __name__ == "__main__":
    kill_at_each(Path(sys.argv[1]))
