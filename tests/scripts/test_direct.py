"""`benchmarks/direct.py` replaces a method of the database, which no type checker checks."""

from __future__ import annotations

from pathlib import Path

from benchmarks.direct import Direct
from perdure.session.ids import StreamId
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.building import create, said
from tests.fakes.clock import ManualClock, SeededRandom

STREAM = StreamId("s")


async def test_append_without_the_writer_thread_is_stored(tmp_path: Path) -> None:
    store = await SqliteStore.open(
        tmp_path / "store.db", clock=ManualClock(), random=SeededRandom(1)
    )
    await create(store, STREAM)
    before = (await store.state(STREAM)).head
    direct = Direct(store)
    direct.append(STREAM, [said("one"), said("two")])
    direct.close()
    assert (await store.state(STREAM)).head == before + 2
    await store.close()
