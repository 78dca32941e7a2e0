"""Upkeep by one worker at a time: retention, the index of search, vectors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psycopg
import pytest

import perdure
from perdure import Store, user
from perdure.client.cluster.runner import cluster_of
from perdure.client.retention import set_retention
from perdure.session.search.parts.sizes import SCANNED
from perdure.stores.retention.policy import Retention
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELD
from tests.fakes.workers import effect_of, effects, of, until, workers

pytestmark = pytest.mark.full_only

SESSIONS = 5
TEXTS = SCANNED * 3
HOURLY = {"index": 3600.0}


@pytest.fixture
def address(postgres: PostgresServer) -> Iterator[str]:
    taken = postgres.take()
    yield taken
    postgres.give_back_of_workers(taken)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    async with perdure.open(address) as opened:
        yield opened


async def test_retention_of_killed_worker_is_continued_by_another_worker(
    store: Store, address: str, folder: Path
) -> None:
    for number in range(SESSIONS):
        await (await store.create()).append(user(f"message {number}"))
    await set_retention(store, Retention(max_sessions=1))
    (folder / HELD).touch()
    async with workers(2, address, folder, factory="upkeeping") as two:
        dead = of(await effect_of(folder, "removed"), two)
        assert 1 < len(await store.recent()) < SESSIONS  # it stands after its first removal
        dead.kill()
        (folder / HELD).unlink()

        def removed() -> list[int]:
            return [pid for pid, text in effects(folder) if text == "removed"]

        async def is_done() -> bool:  # a worker notes a removal after it
            return len(await store.recent()) == 1 and len(removed()) >= SESSIONS - 1

        await until(is_done)
        (last,) = await store.recent()
    assert len(removed()) == SESSIONS - 1
    assert removed().count(dead.pid) == 1
    assert (await store.verify()).is_ok
    assert "message 4" in [m.text for m in await (await store.open(last.id)).messages()]


@pytest.mark.all_only
async def test_worker_stores_vectors_of_texts(store: Store, address: str, folder: Path) -> None:
    session = await store.create()
    await session.append_many([user(f"text {number}") for number in range(TEXTS)])
    (folder / HELD).touch()
    async with workers(1, address, folder, factory="upkeeping"):
        await effect_of(folder, "embedded")
        cluster = cluster_of(store.backend)
        assert not await cluster.take_upkeep("another", {"vectors": 0.0})  # a live worker has it
        (folder / HELD).unlink()

        async def has_vectors() -> bool:
            models = await store.backend.search.vector_models()
            return [state.size for state in models.values()] == [TEXTS]

        await until(has_vectors)


async def test_worker_updates_search_index(store: Store, address: str, folder: Path) -> None:
    session = await store.create()
    await session.append_many([user(f"text {number}") for number in range(TEXTS)])
    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as database:

        async def is_indexed() -> bool:
            row = await (await database.execute("SELECT count(*) FROM perdure.search")).fetchone()
            return row is not None and row[0] > 0

        assert not await is_indexed()
        async with workers(1, address, folder):
            await until(is_indexed)


async def test_maintenance_task_of_a_dead_worker_is_taken_over(store: Store, address: str) -> None:
    cluster = cluster_of(store.backend)
    assert await cluster.take_upkeep("one", HOURLY) == {"index"}
    assert await cluster.take_upkeep("one", HOURLY) == {"index"}  # perhaps the answer was lost
    assert await cluster.take_upkeep("two", HOURLY) == {"index"}  # no worker "one" is alive
    await cluster.end_upkeep("one", "index")
    assert await cluster.take_upkeep("two", HOURLY) == {"index"}
    await cluster.end_upkeep("two", "index")
    assert await cluster.take_upkeep("two", HOURLY) == set()
    async with perdure.open(address, namespace="other") as other:
        assert await cluster_of(other.backend).take_upkeep("two", HOURLY) == {"index"}
    assert await cluster.take_upkeep("two", {"index": 0.0}) == {"index"}
