"""Two processes finish the same erasure: the slower one leaves later work unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.session.clock import Clock
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId
from perdure.session.messages import user
from perdure.stores.protocol import Commit, Durability, Write
from perdure.stores.sqlite import services
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.retention import erase
from perdure.stores.sqlite.retention.erase_records import Open, open_erasures
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.store import SqliteStore
from tests.conformance.store.building import erasure, header
from tests.fakes.clock import START_MS, ManualClock, SeededRandom

REMOVED, ERASED = StreamId("removed"), StreamId("erased")


async def test_late_step_of_a_finished_removal_changes_no_later_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal deletes its own certificate, so the next erasure gets the same number."""
    store = await SqliteStore.open(tmp_path / "a.db", clock=ManualClock(), random=SeededRandom(1))
    for stream in (REMOVED, ERASED):
        write = Write(stream=stream, create=header(stream), entries=(new_tree(user("canary")),))
        await store.commit(Commit(writes=(write,), at=START_MS))
    go_on, seen = erase.go_on, list[Open]()

    async def going_on_twice(database: Database, durability: Durability, clock: Clock) -> None:
        """Record the open erasures in `seen`, then complete them."""
        seen[:] = seen or await database.read(open_erasures)
        await go_on(database, durability, clock)

    async def late(database: Database, durability: Durability, clock: Clock) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(erase, "open_erasures", what_was_seen)
            await go_on(database, durability, clock)
        await go_on(database, durability, clock)

    def what_was_seen(_: Tables) -> list[Open]:
        return seen

    monkeypatch.setattr(services.erasure, "go_on", going_on_twice)
    assert await store.retention.remove(REMOVED)
    monkeypatch.setattr(services.erasure, "go_on", late)
    certificate = await store.retention.erase(erasure(ERASED, id="e1"))

    assert seen
    assert (certificate.id, certificate.is_complete) == ("e1", True)
    assert certificate.removed.texts == 1
    assert [entry.body for entry in await store.entries(ERASED) if entry.kind == "message"] == [b""]
    assert (await store.maintenance.verify()).problems == ()
    await store.close()
