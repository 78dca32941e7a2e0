"""Erasing the origin of a chain of forks costs the same for each, counted in steps of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import apsw
import pytest

from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.sqlite.retention.erase_plan import begin
from perdure.stores.sqlite.rows import Connection, Tables
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import START_MS, SeededRandom
from tests.fakes.streams import S, create, say
from tests.integration.sqlite.conftest import Opener


async def chain(store: SqliteStore, length: int) -> None:
    """A session of some entries, and `length` forks, each of the one before."""
    await create(store)
    await say(store, *(str(number) for number in range(20)))
    origin = S
    for number in range(length):
        state = await store.state(origin)
        point = ForkPoint(origin, state.leaf, state.head, "tree")
        stream = StreamId(f"f{number}")
        header = StreamHeader(stream, START_MS, parent=origin, fork=point)
        write = Write(stream=stream, create=header)
        await store.commit(Commit(writes=(write,), at=START_MS))
        origin = stream


def steps_of_begin(path: Path) -> int:
    """How many steps of SQLite the first transaction of the erasure takes; it is rolled back."""
    db = cast("Connection", apsw.Connection(str(path)))
    request = EraseRequest(id="e", scope="session", by="x", at=START_MS, name=S, forks="keep")
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    db.execute("BEGIN IMMEDIATE")
    db.set_progress_handler(count, 10)
    try:
        begin(Tables(db), "default", request, SeededRandom(1), "sqlite")
    finally:
        db.set_progress_handler(None, 0)
        db.execute("ROLLBACK")
        db.close()
    return steps


@pytest.mark.full_only
async def test_erase_keep_in_a_chain_of_forks_is_linear(open_store: Opener, tmp_path: Path) -> None:
    steps: dict[int, int] = {}
    for length in (25, 250):
        path = tmp_path / f"{length}.db"
        store = await open_store(path)
        await chain(store, length)
        steps[length] = steps_of_begin(path)
        certificate = await store.retention.erase(
            EraseRequest(id="e", scope="session", by="x", at=START_MS, name=S, forks="keep")
        )
        assert len(certificate.sessions[0].kept_for) == length
        assert (await store.maintenance.verify()).problems == ()

    assert steps[250] <= steps[25] * 10 * 1.15
