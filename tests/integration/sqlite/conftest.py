"""Real files for the tests of the SQLite store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.writer import Durability
from tests.fakes.clock import ManualClock, SeededRandom

Opener = Callable[..., Awaitable[SqliteStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[Opener]:
    """Open handles on `path`, or on another file, and close them after the test."""
    opened: list[SqliteStore] = []

    async def opener(
        at: Path = path,
        namespace: str = "default",
        durability: Durability = "normal",
        *,
        is_created: bool = True,
        lock_timeout_s: float = 30.0,
    ) -> SqliteStore:
        store = await SqliteStore.open(
            at,
            namespace=namespace,
            durability=durability,
            clock=ManualClock(),
            random=SeededRandom(len(opened)),
            is_created=is_created,
            lock_timeout_s=lock_timeout_s,
        )
        opened.append(store)
        return store

    yield opener
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Opener) -> SqliteStore:
    return await open_store()
