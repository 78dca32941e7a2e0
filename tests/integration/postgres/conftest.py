"""A database for each test, and stores on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import psycopg
import pytest

from perdure.client.clock import system_random
from perdure.session.clock import Clock
from perdure.stores.postgres.store import PostgresStore
from tests.fakes.postgres import PostgresServer

Database = psycopg.Connection[tuple[Any, ...]]


class Open(Protocol):
    """A function that opens another handle, which the fixture closes."""

    async def __call__(
        self, address: str | None = None, *, namespace: str = "default", clock: Clock | None = None
    ) -> PostgresStore: ...


OF_SESSIONS = frozenset(
    ("connections", "cuts", "faults", "feed", "notifications", "opening", "pooler", "replica")
)
"""The modules whose tests need new sessions of the server."""


@pytest.fixture
def address(postgres: PostgresServer, request: pytest.FixtureRequest) -> Iterator[str]:
    if request.path.stem.removeprefix("test_") not in OF_SESSIONS:
        request.getfixturevalue("warm_postgres")
    taken = postgres.take()
    yield taken
    postgres.give_back(taken)


@pytest.fixture
async def open_store(address: str) -> AsyncIterator[Open]:
    taken = address
    async with AsyncExitStack() as stores:

        async def opened(
            address: str | None = None, *, namespace: str = "default", clock: Clock | None = None
        ) -> PostgresStore:
            store = await PostgresStore.open(
                address or taken, namespace=namespace, clock=clock, random=system_random
            )
            stores.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture
async def store(open_store: Open) -> PostgresStore:
    return await open_store()


@pytest.fixture
def db(address: str, store: PostgresStore) -> Iterator[Database]:
    """A connection without any store settings, as the user of the server's address."""
    assert store.address
    with psycopg.connect(address, autocommit=True) as connection:
        yield connection
