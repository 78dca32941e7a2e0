"""Index a folder of session files and be killed at each operation, one after the other.

FOLDER/original contains sessions without an index. `kill_at_each` makes a copy for every STEP-th
operation, whose indexing was killed at that operation.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from perdure.client.clock import SystemClock, system_random
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.session.search.parts import sizes
from perdure.session.search.values import SearchQuery
from perdure.stores.jsonl.store import JsonlStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.deaths import die_at_each
from tests.fakes.faulty_files import killing_at, planned
from tests.fakes.faulty_vfs import faulty_vfs
from tests.fakes.session_files import file_of
from tests.fakes.session_tools import tool

KEPT = (0.0, 0.5, 1.0)
"""Shares of a killed write that reach the file; each killed process uses the next share."""

S, OTHER = StreamId("s"), StreamId("other")


async def opened(folder: Path) -> JsonlStore:
    return await JsonlStore.open(folder, clock=SystemClock(), random=system_random)


async def live_once(folder: Path) -> None:
    """Index in several steps: first all, then new entries, then a session rewritten by a tool."""
    sizes.BATCH_ROWS, sizes.MOST_LOOSE, sizes.SCANNED = 40, 20, 5
    store = await opened(folder)
    await store.search.index()
    for number in range(3):
        new = tuple(new_tree(user(f"word more{number} {each}")) for each in range(9))
        await store.commit(Commit(writes=(Write(stream=S, entries=new),), at=2))
        await store.search.hits(SearchQuery(text="word"))
    path = file_of(folder, OTHER)
    tool("operator", path).say("user", "word anew")
    content = path.read_bytes()
    path.unlink()
    path.write_bytes(content)
    await store.search.hits(SearchQuery(text="word"))
    await store.close()


def kill_at_each(folder: Path, step: int) -> None:
    def live(operation: int) -> None:
        life = folder / f"{operation:04}"
        shutil.copytree(folder / "original", life)
        plan = killing_at(operation, KEPT[operation % len(KEPT)])
        with planned(plan), faulty_vfs() as layer:
            layer.plan = lambda _operation, name, _offset: plan("fsync", (name,))
            asyncio.run(live_once(life))

    die_at_each(live, step)
