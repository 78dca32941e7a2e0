"""A store in memory, on a clock that only the test moves."""

from __future__ import annotations

import pytest

from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.stores.in_memory.store import MemoryStore
from tests.fakes.clock import ManualClock, SeededRandom


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def memory(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock, random=SeededRandom())


@pytest.fixture
def store(memory: MemoryStore, clock: ManualClock) -> Store:
    return Store(memory, Outside(clock, SeededRandom(1)))
