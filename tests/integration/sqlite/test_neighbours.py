"""A small namespace beside a large one costs as much as alone, counted in steps of SQLite."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from perdure.session.search.values import SearchQuery
from perdure.stores.sqlite import reads
from perdure.stores.sqlite.log.orphans import stray_problems
from perdure.stores.sqlite.maintenance.stats import sizes_and_growth
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.search.log import SqliteLog, progress
from perdure.stores.sqlite.search.search_index import index_problems
from perdure.stores.verification import Steps
from tests.fakes.streams import create, say
from tests.integration.sqlite.conftest import Opener

SMALL = 12
LARGE = 6_000

READS: dict[str, Callable[[Tables], object]] = {
    "feed": lambda tables: reads.feed(tables, "small", 0, 1000),
    "feed-after": lambda tables: reads.feed(
        tables, "small", reads.position(tables, "small") - 6, 1000
    ),
    "position": lambda tables: reads.position(tables, "small"),
    "search-progress": lambda tables: progress(tables, 2),
    "search-first": lambda tables: list(SqliteLog(tables, 2).entries(0)),
    "search-titles": lambda tables: list(SqliteLog(tables, 2).titles(0)),
    "verify-strays": lambda tables: list(stray_problems(tables, "small")),
    "verify-index": lambda tables: list(index_problems(tables, "small", Steps(None, 0))),
    "stats": lambda tables: sizes_and_growth(tables, "small", 0),
}


async def filled(open_store: Opener, path: Path, large: int) -> None:
    """A file in which a small namespace is between two halves of another."""
    big = await open_store(path, "big")
    await create(big)
    await say(big, *(f"word {number}" for number in range(large // 2)))
    small = await open_store(path, "small")
    await create(small)
    await say(small, *(f"word {number}" for number in range(SMALL)))
    await say(big, *(f"other {number}" for number in range(large // 2)))
    for store in (small, big):
        await store.search.hits(SearchQuery(text="word"))


def steps_of(path: Path, work: Callable[[Tables], object]) -> int:
    """Return the number of SQLite steps of `work`."""
    db = apsw.Connection(str(path))
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    try:
        tables = Tables(db)
        work(tables)  # names of kinds and streams are remembered from now on
        db.set_progress_handler(count, 1)
        work(tables)
    finally:
        db.set_progress_handler(None, 0)
        db.close()
    return steps


@pytest.mark.full_only
async def test_reads_of_a_small_namespace_cost_the_same_beside_a_large_namespace(
    open_store: Opener, tmp_path: Path
) -> None:
    alone, crowded = tmp_path / "alone.db", tmp_path / "crowded.db"
    await filled(open_store, alone, 2)
    await filled(open_store, crowded, LARGE)

    for name, read in READS.items():
        few, many = steps_of(alone, read), steps_of(crowded, read)
        assert many <= few * 1.1 + 40, f"{name}: {few} steps alone, {many} beside {LARGE} entries"


async def test_feed_of_a_namespace_contains_only_entries_of_that_namespace(
    open_store: Opener,
) -> None:
    stores = [await open_store(namespace=name) for name in ("a", "b")]
    for store in stores:
        await create(store)
    for number in range(5):
        for store in stores:
            await say(store, str(number))

    for store in stores:
        items = await store.feed(0)
        assert [item.entry.message.text for item in items if item.entry.message] == list("01234")
        assert await store.position() == items[-1].position
        assert await store.feed(items[2].position) == items[3:]
        assert (await store.maintenance.verify()).problems == ()
