"""Real folders for tests of the session file store, in both dialects."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from perdure.stores.jsonl.store import DialectName, Durability, JsonlStore
from tests.fakes.clock import ManualClock, SeededRandom

Opener = Callable[..., Awaitable[JsonlStore]]

HERE = Path(__file__).parent
SAME_IN_BOTH = {"test_index", "test_repair", "test_tail", "test_vanishing"}
"""Modules whose results do not depend on the record format: `make test` runs only one dialect."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules in `SAME_IN_BOTH` with the second dialect only in `make test-all`."""
    for item in items:
        call = getattr(item, "callspec", None)
        is_second = call is not None and call.params.get("dialect") == "operator"
        if is_second and item.path.parent == HERE and item.path.stem in SAME_IN_BOTH:
            item.add_marker("all_only")


@asynccontextmanager
async def opened(folder: Path, dialect: DialectName) -> AsyncGenerator[JsonlStore]:
    """Open a handle on `folder` during the block."""
    store = await JsonlStore.open(
        folder, dialect=dialect, durability="normal", clock=ManualClock(), random=SeededRandom()
    )
    try:
        yield store
    finally:
        await store.close()


@pytest.fixture(params=["operator", "pi"])
def dialect(request: pytest.FixtureRequest) -> DialectName:
    return request.param


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
async def open_store(folder: Path, dialect: DialectName) -> AsyncIterator[Opener]:
    """Open handles on `folder`, or on another folder, and close them after the test."""
    opened: list[JsonlStore] = []

    async def opener(
        at: Path = folder, durability: Durability = "normal", namespace: str = "default"
    ) -> JsonlStore:
        store = await JsonlStore.open(
            at,
            dialect=dialect,
            namespace=namespace,
            durability=durability,
            clock=ManualClock(),
            random=SeededRandom(len(opened)),
        )
        opened.append(store)
        return store

    yield opener
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Opener) -> JsonlStore:
    return await open_store()
