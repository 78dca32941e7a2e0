"""Run each test that uses `store`, `data` or `backend` against every backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.stores.protocol import Capabilities
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import BACKENDS, Backend, Data
from tests.fakes.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, clock: ManualClock) -> Backend:
    is_served = request.param == "postgres"
    server = request.getfixturevalue("warm_postgres") if is_served else None
    return Backend(request.param, tmp_path, clock, server)


_CAPABILITIES: dict[str, Capabilities] = {}
"""Maps the name of a backend to its capabilities, which are the same for all its stores."""


@pytest.fixture(autouse=True)
def needed(request: pytest.FixtureRequest) -> None:
    """Skip a test marked ``needs`` on a backend without that capability.

    `test_capabilities` checks that a backend without the capability raises an error.
    """
    marks = list(request.node.iter_markers("needs"))
    if marks:
        backend: Backend = request.getfixturevalue("backend")
        if backend.name not in _CAPABILITIES:
            request.getfixturevalue("declared")
        for mark in marks:
            if not getattr(_CAPABILITIES[backend.name], mark.args[0]):
                pytest.skip(f"{backend.name} declares no {mark.args[0]}")


@pytest.fixture
async def declared(backend: Backend) -> None:
    """Store the capabilities that a store of the backend declares in `_CAPABILITIES`."""
    data = backend.new()
    _CAPABILITIES[backend.name] = (await data.open()).capabilities
    await data.close()


@pytest.fixture
async def data(backend: Backend) -> AsyncIterator[Data]:
    made = backend.new()
    yield made
    await made.close()


@pytest.fixture
async def store(data: Data) -> SessionStore:
    return await data.open()
