"""Several processes on one PostgreSQL database: what SQLite's do, on a server."""

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

PROCESSES = 8
APPENDS = 100
RACES = 60


@pytest.fixture
def address(postgres: PostgresServer) -> Iterator[str]:
    taken = postgres.take()
    yield taken
    postgres.give_back(taken)


@pytest.fixture
async def store(address: str) -> AsyncIterator[PostgresStore]:
    store = await PostgresStore.open(address, random=system_random)
    await make_shared(store)
    yield store
    await store.close()


@pytest.mark.slow
async def test_eight_processes_append_to_one_session_and_all_is_kept_in_order(
    store: PostgresStore, address: str
) -> None:
    await all_append(store, address, PROCESSES, APPENDS)


@pytest.mark.slow
async def test_eight_processes_race_for_every_head_and_one_wins_each(
    store: PostgresStore, address: str
) -> None:
    await all_race(store, address, PROCESSES, RACES)


async def test_two_processes_read_and_write_at_once(store: PostgresStore, address: str) -> None:
    await two_read_and_write(store, address, 30)


async def test_a_leader_that_slept_past_its_lease_is_refused(
    store: PostgresStore, address: str
) -> None:
    await leader_sleeps(store, address)
