"""A check that is cancelled stops, in every kind of store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.client.open import open as open_store
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS
from tests.fakes.postgres import PostgresServer

ENTRIES = 5_000


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("warm_postgres")
        taken = server.take()
        yield taken
        server.give_back(taken)
        return
    yield f"{request.param}:///{tmp_path / 'store'}"


async def test_cancelled_store_verification_stops(address: str) -> None:
    told: list[int] = []
    may_go_on = threading.Event()
    stream = StreamId("s")
    said = tuple(new_tree(user(f"word {number}")) for number in range(ENTRIES))
    async with open_store(address) as store:
        write = Write(stream=stream, create=StreamHeader(stream, START_MS), entries=said)
        await store.backend.commit(Commit(writes=(write,), at=START_MS))
        loop = asyncio.get_running_loop()

        def tell(done: int, _total: int) -> None:
            told.append(done)
            loop.call_soon_threadsafe(checking.cancel)
            may_go_on.wait()

        checking = asyncio.ensure_future(store.verify(tell))
        with pytest.raises(asyncio.CancelledError):
            await checking
        may_go_on.set()
        # The store is as it was, and a check of all of it finds nothing.
        assert (await store.verify()).is_ok
    assert told == [500]
