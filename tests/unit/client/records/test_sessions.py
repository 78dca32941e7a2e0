"""The sessions from which records are computed."""

from __future__ import annotations

import perdure
from perdure.client.records.sessions import newest_sessions, own_entries
from perdure.session.ids import StreamId
from tests.fakes.clock import ManualClock


async def test_sessions_are_read_newest_first_without_repetition() -> None:
    clock = ManualClock()
    async with perdure.open("memory:", clock=clock) as store:
        ids: list[str] = []
        for _ in range(200):
            clock.advance(1)
            ids.append((await store.create()).id)
        found = [info async for info in newest_sessions(store.backend)]
        assert [info.id for info in found] == ids[::-1]
        since = found[9].updated_at
        newest = [info.id async for info in newest_sessions(store.backend, since)]
        assert newest == [info.id for info in found[:10]]


async def test_missing_session_has_no_entries_to_read() -> None:
    async with perdure.open("memory:") as store:
        assert [page async for page in own_entries(store.backend, StreamId("ghost"))] == []
