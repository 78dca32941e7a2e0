"""Processes on one folder of session files: no append lost, one order, one lease owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from perdure.client.clock import SystemClock, system_random
from perdure.session.ids import StreamId
from perdure.stores.jsonl.store import DialectName, JsonlStore
from tests.concurrency.children.many_writers import S
from tests.fakes.crowds import CHILD, all_race, leader_sleeps, make_shared, texts
from tests.fakes.processes import run_together
from tests.fakes.samples import ALL_ONLY
from tests.fakes.session_files import file_of
from tests.fakes.session_tools import tool

PROCESSES = 4


@pytest.fixture(params=["pi", pytest.param("operator", marks=ALL_ONLY)])
def dialect(request: pytest.FixtureRequest) -> DialectName:
    return request.param


@pytest.fixture
async def store(tmp_path: Path, dialect: DialectName) -> AsyncIterator[JsonlStore]:
    store = await JsonlStore.open(
        tmp_path, dialect=dialect, clock=SystemClock(), random=system_random
    )
    await make_shared(store)
    yield store
    await store.close()


async def test_concurrent_appends_are_not_lost_or_doubled(
    store: JsonlStore, tmp_path: Path, dialect: str
) -> None:
    count = 60
    assert run_together(CHILD, "pairs", store.address, PROCESSES, count) == ["done"] * PROCESSES

    entries = await store.entries(S)
    assert [entry.seq for entry in entries] == list(range(2 * PROCESSES * count))
    said = await texts(store)
    assert said[::2] == said[1::2]  # the entries of one commit are adjacent
    for number in range(PROCESSES):
        own = [int(index) for name, index in said[::2] if name == f"w{number}"]
        assert own == list(range(count))
    assert [item.entry.id for item in await store.feed(0)] == [entry.id for entry in entries]
    assert (await store.maintenance.verify()).problems == ()
    assert len(tool(dialect, file_of(tmp_path, S)).context()) == 2 * PROCESSES * count


async def test_only_one_process_appends_at_the_same_expected_head(store: JsonlStore) -> None:
    await all_race(store, store.address, PROCESSES, 80)


async def test_appends_of_processes_with_one_idempotency_key_are_stored_once(
    store: JsonlStore,
) -> None:
    count = 40
    assert run_together(CHILD, "key", store.address, PROCESSES, count) == ["done"] * PROCESSES

    assert await texts(store) == [["all", str(number)] for number in range(count)]


async def test_processes_with_one_session_id_create_one_session(store: JsonlStore) -> None:
    count = 30
    made = [
        id_
        for line in run_together(CHILD, "create", store.address, PROCESSES, count)
        for id_ in line.split()
    ]

    assert sorted(made) == sorted(f"new{number}" for number in range(count))
    assert len(await store.sessions(limit=None)) == count + 1
    for number in range(count):
        assert (await store.state(StreamId(f"new{number}"))).head == 0


async def test_process_with_an_expired_lease_cannot_write(store: JsonlStore) -> None:
    await leader_sleeps(store, store.address)
