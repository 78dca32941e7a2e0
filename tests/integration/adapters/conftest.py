"""Addresses of empty stores for the tests of adapters: SQLite, and PostgreSQL with `make test`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

STORES = ("sqlite", pytest.param("postgres", marks=pytest.mark.full_only))
"""Parameters of `store_address`: each test of an adapter runs on each of these stores."""

POSTGRES_LATER = pytest.mark.parametrize(
    "store_address", ["sqlite", pytest.param("postgres", marks=pytest.mark.all_only)], indirect=True
)
"""Run a test on PostgreSQL only in `make test-all`, because the adapter does the same there."""


@pytest.fixture(params=STORES)
def store_address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Return the address of an empty store that any number of processes can open."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'sessions.db'}"
        return
    postgres = request.getfixturevalue("warm_postgres")
    address: str = postgres.take()
    yield address
    postgres.give_back(address)
