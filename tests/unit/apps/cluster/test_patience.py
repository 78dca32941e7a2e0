"""A worker waits until its store is available, and says so once."""

from __future__ import annotations

import asyncio

import pytest

from perdure.apps.cluster import patience
from perdure.errors import StoreUnavailable

WAITS = "waiting for the store: the server is not available: it is down"


class Store:
    """A store that is unavailable for the first `failures` openings."""

    def __init__(self, failures: int, *, is_lasting: bool = False) -> None:
        self.failures = failures
        self.is_lasting = is_lasting
        self.openings = 0

    async def open(self) -> str:
        self.openings += 1
        if self.openings <= self.failures:
            raise StoreUnavailable("the server", "it is down", is_lasting=self.is_lasting)
        return "open"


@pytest.fixture(autouse=True)
def _no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "FIRST_WAIT_S", 0.0)


async def test_store_that_becomes_available_is_opened_after_one_remark(
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = Store(3)
    assert await patience.when_available(store.open, asyncio.Event()) == "open"
    assert store.openings == 4
    assert capsys.readouterr().err.splitlines() == [
        WAITS,
        "the store is available",
    ]


async def test_available_store_is_opened_without_a_remark(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await patience.when_available(Store(0).open, asyncio.Event()) == "open"
    assert capsys.readouterr().err == ""


async def test_lasting_failure_of_the_store_ends_the_wait() -> None:
    store = Store(1, is_lasting=True)
    with pytest.raises(StoreUnavailable):
        await patience.when_available(store.open, asyncio.Event())
    assert store.openings == 1


async def test_wait_for_the_store_ends_when_the_worker_stops() -> None:
    stopping = asyncio.Event()
    asyncio.get_running_loop().call_soon(stopping.set)
    assert await patience.when_available(Store(1_000_000).open, stopping) is None
