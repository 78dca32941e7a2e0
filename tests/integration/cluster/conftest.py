"""A database for workers, and a folder to which their tools write."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import perdure
from perdure import Store
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELD


@pytest.fixture(scope="module")
def address(postgres: PostgresServer) -> Iterator[str]:
    """Return the address of an empty database, for the tests of one module."""
    taken = postgres.take()
    yield taken
    postgres.give_back_of_workers(taken)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder to which the tools of workers write."""
    return tmp_path_factory.mktemp("workers")


@pytest.fixture(autouse=True)
def _nothing_is_held(folder: Path) -> Iterator[None]:
    """Release everything that a failed test has left blocked."""
    yield
    (folder / HELD).unlink(missing_ok=True)


@pytest.fixture
async def store(address: str, warm_postgres: PostgresServer) -> AsyncIterator[Store]:
    assert warm_postgres.address
    async with perdure.open(address) as opened:
        yield opened
