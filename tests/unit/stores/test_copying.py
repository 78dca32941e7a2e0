"""A copy without new commits does not read streams one by one."""

from __future__ import annotations

import pytest

from perdure.apps.maintenance.copy import copy_of
from perdure.session.ids import StreamId
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import StreamState
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.streams import create, say


async def test_copy_without_new_commits_reads_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = (MemoryStore(clock=ManualClock(), random=SeededRandom(n)) for n in (1, 2))
    for number in range(20):
        await create(source, StreamId(f"s{number}"))
        await say(source, "hello", stream=StreamId(f"s{number}"))
    await copy_of(source, target).run(await source.maintenance.segment_states())
    await say(source, "more", stream=StreamId("s3"))
    read: list[str] = []
    state = target.state

    async def counted(stream: StreamId) -> StreamState:
        read.append(stream)
        return await state(stream)

    monkeypatch.setattr(target, "state", counted)
    report = await copy_of(source, target).run(await source.maintenance.segment_states())

    assert set(read) == {"s3"}
    assert [each.outcome for each in report.streams].count("present") == 19
    assert (await target.state(StreamId("s3"))).head == 1
