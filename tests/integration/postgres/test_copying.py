"""Concurrent copies from one database and into one database."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from perdure.apps.maintenance.copy import copy_of
from perdure.errors import SessionNotFound
from perdure.session.ids import StreamId
from perdure.stores.copy import CopyReport
from perdure.stores.postgres.database import Database, Statement
from perdure.stores.postgres.store import PostgresStore
from tests.conformance.store.building import S, append, create, said
from tests.integration.postgres.conftest import Open

T = StreamId("t")


async def copied(source: PostgresStore, target: PostgresStore) -> CopyReport:
    return await copy_of(source, target).run(await source.maintenance.segment_states())


async def test_concurrent_copies_of_same_session_both_finish(
    store: PostgresStore, open_store: Open
) -> None:
    for stream in (S, T):
        await create(store, stream, said("a"))
        await append(store, stream, said("b"))
    targets = [await open_store(namespace="there") for _ in range(4)]

    reports = await asyncio.gather(*(copied(store, target) for target in targets))

    assert all(report.is_whole for report in reports), reports
    assert sum(report.added_entries for report in reports) >= 4
    assert (await targets[0].maintenance.verify()).problems == ()
    assert len(await targets[0].maintenance.segment_states()) == 2


async def test_session_removed_during_a_copy_is_reported_as_missing(
    store: PostgresStore, open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    await create(store, S, said("a"))
    other, ask, asked = await open_store(), Database.ask, 0

    async def then_removed(self: Database, *statements: Statement) -> list[list[Any]]:
        nonlocal asked
        asked += 1
        if asked == 2:
            monkeypatch.undo()
            assert await other.retention.remove(S)
        return await ask(self, *statements)

    monkeypatch.setattr(Database, "ask", then_removed)
    with pytest.raises(SessionNotFound):
        await store.maintenance.read_segment(S, after=-1, upto=0)
