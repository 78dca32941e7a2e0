"""``kill -9`` of a process that builds a search index, at each write and fsync."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.session.search.values import SearchQuery
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore

CHILD = Path(__file__).parent / "children" / "indexer.py"
ENTRIES = 700
"""Two steps of indexing: a part, and texts that are in none yet."""


async def opened(path: Path) -> SqliteStore:
    return await SqliteStore.open(path, clock=SystemClock(), random=system_random)


async def fill(path: Path) -> None:
    store = await opened(path)
    stream = StreamId("s")
    entries = tuple(new_tree(user(f"word number{each}")) for each in range(ENTRIES))
    write = Write(stream=stream, create=StreamHeader(stream, 1, title="word"), entries=entries)
    await store.commit(Commit(writes=(write,), at=1))
    await store.close()


async def check(path: Path) -> None:
    """Everything is found, and what is indexed is what the log says."""
    store = await opened(path)
    try:
        assert (await store.verify()).problems == ()
        found = await store.search(SearchQuery(text="word", limit=ENTRIES + 1))
        assert len({hit.entry for hit in found}) == ENTRIES + 1
        assert (await store.verify()).problems == ()
    finally:
        await store.close()


@pytest.mark.slow
def test_a_kill_at_each_write_and_fsync_of_indexing_leaves_a_right_index(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path / "original.db"))

    subprocess.run([sys.executable, str(CHILD), str(tmp_path)], check=True, timeout=100)

    lives = sorted(tmp_path.glob("0*.db"))
    for path in lives:
        asyncio.run(check(path))
    assert len(lives) > 20
