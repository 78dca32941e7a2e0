"""``kill -9`` of a process that builds a search index, at each write and fsync."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.protocol import Commit, Write
from perdure.stores.sqlite.store import SqliteStore
from tests.crash.children import indexer, session_indexer
from tests.fakes.forked import preload, run_forked
from tests.fakes.samples import EACH_KILL, EACH_KILL_OF_MANY
from tests.fakes.session_scan import in_order, scanned

preload(indexer.__name__, session_indexer.__name__)

ENTRIES = 700
"""Enough entries for two steps of indexing: a part, and texts that are in no part yet."""


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
    """Check that everything is found, and that the index matches the log."""
    store = await opened(path)
    try:
        assert (await store.maintenance.verify()).problems == ()
        found = await store.search.hits(SearchQuery(text="word", limit=ENTRIES + 1))
        assert len({hit.entry for hit in found}) == ENTRIES + 1
        assert (await store.maintenance.verify()).problems == ()
    finally:
        await store.close()


@pytest.mark.timeout(400)
@EACH_KILL
def test_index_is_correct_after_kill_at_each_write(tmp_path: Path, step: int) -> None:
    asyncio.run(fill(tmp_path / "original.db"))

    assert run_forked(indexer.kill_at_each, tmp_path, step).code == 0

    lives = sorted(tmp_path.glob("0*.db"))
    for path in lives:
        asyncio.run(check(path))
    assert len(lives) * step > 20


async def fill_folder(folder: Path) -> None:
    store = await session_indexer.opened(folder)
    for stream in (session_indexer.S, session_indexer.OTHER):
        entries = tuple(new_tree(user(f"word number{each}")) for each in range(60))
        write = Write(stream=stream, create=StreamHeader(stream, 1, title="word"), entries=entries)
        await store.commit(Commit(writes=(write,), at=1))
    await store.close()


class Scans:
    """A cache of the hits of each scan, because many kills leave the same session files."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], list[Hit]] = {}

    def hits(self, folder: Path, query: SearchQuery) -> list[Hit]:
        """Return the hits of a scan of `folder`, or the known hits of the same files."""
        files = sorted(folder.rglob("*.jsonl"))
        key = (query, *((file.relative_to(folder), file.read_bytes()) for file in files))
        if key not in self._known:
            self._known[key] = in_order(scanned(folder, "operator", query))
        return self._known[key]


async def check_folder(folder: Path, scans: Scans) -> None:
    """Check that searches match the files, and that the index knows all files of the folder."""
    store = await session_indexer.opened(folder)
    try:
        for query in (SearchQuery(text="word", limit=500), SearchQuery(text="more1 OR anew")):
            assert in_order(await store.search.hits(query)) == scans.hits(folder, query)
        problems = [each.problem for each in (await store.maintenance.verify()).problems]
        assert all("were never committed" in problem for problem in problems)
        await store.search.reindex()
        query = SearchQuery(text="word", limit=500)
        assert in_order(await store.search.hits(query)) == scans.hits(folder, query)
    finally:
        await store.close()


@pytest.mark.timeout(400)
@EACH_KILL_OF_MANY
def test_session_file_index_is_correct_after_kill_at_each_operation(
    tmp_path: Path, step: int
) -> None:
    asyncio.run(fill_folder(tmp_path / "original"))

    assert run_forked(session_indexer.kill_at_each, tmp_path, step).code == 0

    lives = sorted(tmp_path.glob("0*"))
    scans = Scans()
    for folder in lives:
        asyncio.run(check_folder(folder, scans))
    assert len(lives) * step > 200
