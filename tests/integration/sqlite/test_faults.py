"""A disk that is full, fails, or lies: the error for the caller, and the remaining data."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from perdure.errors import StoreCorrupt, StoreFull, StoreUnavailable
from perdure.session.ids import StreamId
from perdure.stores.sqlite import schema
from perdure.stores.sqlite.faults import MEANINGS, meaning_of
from tests.fakes.faulty_vfs import FaultyVfs, failing_from, faulty_vfs, nothing
from tests.fakes.raw_database import raw_database
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener

CHILDREN = Path(__file__).parent / "children"


@pytest.fixture
def layer() -> Iterator[FaultyVfs]:
    with faulty_vfs() as layer:
        yield layer


@pytest.mark.parametrize("number", range(1, 8))
async def test_append_on_a_full_disk_stores_no_entry(
    layer: FaultyVfs, open_store: Opener, number: int
) -> None:
    store = await open_store(durability="full")
    await create(store)
    await say(store, "before")

    layer.plan = failing_from(number, apsw.FullError, "write")
    with pytest.raises(StoreFull):
        await say(store, "x" * 100_000)
    layer.plan = nothing

    await say(store, "after")
    assert [entry.seq for entry in await store.entries(S)] == [0, 1]
    assert (await store.maintenance.verify()).is_ok


async def test_small_commit_can_still_succeed_on_a_full_disk(
    layer: FaultyVfs, open_store: Opener
) -> None:
    store = await open_store()
    await create(store)

    def plan(_operation: str, _name: str, offset: int) -> None:
        if offset > 100_000:
            raise apsw.FullError("no more")

    layer.plan = plan
    outcomes = await asyncio.gather(
        say(store, "x" * 200_000), say(store, "small"), return_exceptions=True
    )
    layer.plan = nothing
    assert isinstance(outcomes[0], StoreFull)
    assert isinstance(outcomes[1], list)
    assert (await store.maintenance.verify()).is_ok


async def test_disk_failure_during_sync_leaves_commit_in_doubt(
    layer: FaultyVfs, open_store: Opener
) -> None:
    store = await open_store(durability="full")
    await create(store)

    layer.plan = failing_from(1, apsw.IOError, "sync")
    with pytest.raises(StoreUnavailable):
        await say(store, "who knows")
    layer.plan = nothing

    await say(store, "after")
    verification = await store.maintenance.verify()
    assert verification.is_ok
    assert verification.entries in (1, 2)


async def test_disk_failure_during_write_is_reported(layer: FaultyVfs, open_store: Opener) -> None:
    store = await open_store()
    await create(store)

    layer.plan = failing_from(1, apsw.IOError, "write")
    with pytest.raises(StoreUnavailable):
        await say(store, "lost")
    layer.plan = nothing

    await say(store, "after")
    assert [entry.seq for entry in await store.entries(S)] == [0]


def test_file_size_limit_counts_as_full_disk(path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    child = subprocess.run(
        [sys.executable, str(CHILDREN / "fill.py"), str(path)],
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.stdout.split() == ["store_full", "appended", "ok"], child.stderr


async def test_opening_reports_a_full_disk_if_the_wal_index_does_not_fit(
    open_store: Opener,
) -> None:
    await (await open_store()).close()
    with limited_file_size(4_096), pytest.raises(StoreFull):
        await open_store()


async def test_creating_a_store_above_the_file_size_limit_counts_as_full_disk(
    open_store: Opener, path: Path
) -> None:
    with limited_file_size(4_096), pytest.raises(StoreFull):
        await open_store()
    assert list(path.parent.iterdir()) == []


@contextmanager
def limited_file_size(limit: int) -> Generator[None]:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


async def damaged(open_store: Opener, path: Path) -> int:
    """Overwrite the second to last page of a store's entries; return the number of entries."""
    store = await open_store()
    await create(store)
    for number in range(40):
        await say(store, f"{number} " * 500)
    await store.close()
    query = "SELECT pageno FROM dbstat WHERE name = 'entry' AND pagetype = 'leaf' ORDER BY path"
    with raw_database(path) as db:
        pages: list[int] = [row[0] for row in db.execute(query)]
    with path.open("r+b") as file:
        file.seek((pages[-2] - 1) * schema.PAGE_BYTES)
        file.write(b"\xff" * schema.PAGE_BYTES)
    return 40


async def test_damaged_page_is_reported_and_writing_stops(open_store: Opener, path: Path) -> None:
    await damaged(open_store, path)
    store = await open_store()
    await create(store, StreamId("other"))

    with pytest.raises(StoreCorrupt):
        await store.entries(S)
    with pytest.raises(StoreCorrupt):
        await say(store, "no more", stream=StreamId("other"))
    assert (await store.state(StreamId("other"))).head == -1


async def test_verify_reports_entries_lost_in_damaged_page(open_store: Opener, path: Path) -> None:
    count = await damaged(open_store, path)
    store = await open_store()

    verification = await store.maintenance.verify()
    unreadable = {
        problem.seq for problem in verification.problems if "it cannot be read" in problem.problem
    }
    assert unreadable
    assert unreadable < set(range(count))
    assert verification.entries == count - len(unreadable)
    assert any("database file" in problem.problem for problem in verification.problems)


def test_every_driver_error_becomes_a_store_error() -> None:
    for name in dir(apsw):
        kind = getattr(apsw, name)
        if isinstance(kind, type) and issubclass(kind, apsw.Error):
            assert meaning_of(kind("why"), Path("x.db")).code.startswith(("store_", "invalid_"))


def test_lock_timeout_is_reported_as_store_locked() -> None:
    busy = meaning_of(apsw.BusyError("database is locked"), Path("x.db"))

    assert busy.code == "store_locked"
    assert "database is locked" not in str(busy)
    assert len({kind for kind, _ in MEANINGS}) == len(MEANINGS)
