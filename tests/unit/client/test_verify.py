"""Checks of a store through its handle. tests/integration/operating tests cancelled checks."""

from __future__ import annotations

from perdure.client.clock import SystemClock, system_random
from perdure.client.verify import verify_backend
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Write


async def test_verify_reports_progress_and_findings() -> None:
    store = MemoryStore(clock=SystemClock(), random=system_random)
    header = StreamHeader(StreamId("s"), 1)
    write = Write(stream=header.id, create=header, entries=(new_tree(user("hello")),))
    await store.commit(Commit(writes=(write,), at=1))
    told: list[tuple[int, int]] = []

    found = await verify_backend(store, lambda done, steps: told.append((done, steps)))

    assert (found.is_ok, found.streams, found.entries) == (True, 1, 1)
    assert told == [(1, 1)]
    assert await verify_backend(store, None) == found
