"""Several processes on one PostgreSQL database: the same tests as for SQLite, on a server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from perdure.client.clock import system_random
from perdure.stores.postgres.store import PostgresStore
from tests.fakes.crowds import (
    all_append,
    all_race,
    leader_sleeps,
    make_shared,
    two_read_and_write,
)
from tests.fakes.postgres import PostgresServer
from tests.fakes.samples import with_larger

PROCESSES = 8
APPENDS = pytest.mark.parametrize("count", with_larger(12, 100))
RACES = pytest.mark.parametrize("count", with_larger(8, 60))


@pytest.fixture
def address(warm_postgres: PostgresServer) -> Iterator[str]:
    taken = warm_postgres.take()
    yield taken
    warm_postgres.give_back(taken)


@pytest.fixture
async def store(address: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(address, random=system_random)
    await make_shared(store)
    yield store
    await store.close()


@APPENDS
async def test_eight_processes_append_to_one_session_in_order(
    store: PostgresStore, address: str, count: int
) -> None:
    await all_append(store, address, PROCESSES, count)


@RACES
async def test_only_one_of_eight_processes_can_append_at_the_same_head(
    store: PostgresStore, address: str, count: int
) -> None:
    await all_race(store, address, PROCESSES, count)


async def test_two_processes_read_and_write_concurrently(
    store: PostgresStore, address: str
) -> None:
    await two_read_and_write(store, address, 30)


async def test_process_with_an_expired_lease_cannot_write(
    store: PostgresStore, address: str
) -> None:
    await leader_sleeps(store, address)
