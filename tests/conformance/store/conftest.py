"""Each test that asks for `store`, `data` or `backend` runs against every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.stores.protocol import SessionStore
from tests.conformance.store.backends import BACKENDS, Backend, Data
from tests.fakes.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Backend:
    return Backend(request.param, tmp_path, clock)


@pytest.fixture
async def data(backend: Backend) -> AsyncIterator[Data]:
    made = backend.new()
    yield made
    await made.close()


@pytest.fixture
async def store(data: Data) -> SessionStore:
    return await data.open()
