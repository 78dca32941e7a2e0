"""Processes on one database file: no append lost, one order, one winner, one lease owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.stores.sqlite.store import SqliteStore
from tests.concurrency.children.many_writers import S
from tests.fakes.crowds import (
    CHILD,
    all_append,
    all_race,
    leader_sleeps,
    make_shared,
    two_read_and_write,
)
from tests.fakes.processes import run_together
from tests.fakes.samples import with_larger

PROCESSES = 8
COUNTS = pytest.mark.parametrize("count", with_larger(40, 1_000))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    await make_shared(store)
    yield store
    await store.close()


@COUNTS
async def test_appends_of_eight_processes_are_all_stored(
    store: SqliteStore, path: Path, count: int
) -> None:
    await all_append(store, path, PROCESSES, count)


@COUNTS
async def test_only_one_of_eight_processes_can_append_at_the_same_head(
    store: SqliteStore, path: Path, count: int
) -> None:
    await all_race(store, path, PROCESSES, count)


async def test_two_processes_read_and_write_concurrently(store: SqliteStore, path: Path) -> None:
    await two_read_and_write(store, path, 100)


async def test_processes_that_open_and_close_a_store_do_not_disturb_its_writers(
    store: SqliteStore, path: Path
) -> None:
    await store.close()
    assert run_together(CHILD, "visit", path, 4, 15) == ["done"] * 4

    again = await SqliteStore.open(path, clock=SystemClock(), random=system_random)
    assert (await again.maintenance.verify()).problems == ()
    assert (await again.state(S)).head == 59
    await again.close()


@pytest.mark.parametrize("rounds", with_larger(15, 40))
async def test_processes_that_create_the_same_store_concurrently_share_that_store(
    store: SqliteStore, path: Path, rounds: int
) -> None:
    assert run_together(CHILD, "make", path, 4, rounds) == ["done"] * 4


async def test_process_with_an_expired_lease_cannot_write(store: SqliteStore, path: Path) -> None:
    await leader_sleeps(store, path)
