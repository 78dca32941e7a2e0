"""Workers whose transactions go through a real PgBouncer in transaction mode."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure import Runtime, Store
from perdure.client.cluster.runner import cluster_of
from perdure.stores.cluster.limits import Limit
from tests.fakes.pooler import pooling
from tests.fakes.postgres import PostgresServer
from tests.fakes.worker_program import HELD, HELPER
from tests.fakes.workers import effect_of, effects, of, workers

pytestmark = pytest.mark.all_only


@pytest.fixture(scope="module")
def address(postgres: PostgresServer) -> Iterator[str]:
    """The address of a new database through the pooler, which opens few connections to it."""
    made = postgres.new_database()
    with pooling(postgres, connections=4) as pooler:
        yield pooler.address_of(made)
    postgres.drop(made)


async def test_turn_of_a_worker_killed_behind_a_pooler_is_continued(
    store: Store, address: str, folder: Path
) -> None:
    limits = cluster_of(store.backend).limits
    await limits.set_limit(Limit(subject="namespace:default", turns=1, waiting=2))
    await limits.set_limit(Limit(subject="provider:scripted", turns=1, per_minute=10_000))
    async with (
        workers(2, address, folder) as two,
        Runtime(store, agents=[HELPER], runner="workers") as runtime,
    ):
        chat = await runtime.start(HELPER)
        (folder / HELD).touch()
        turn = chat.send(f'/tool wait {{"text": "{chat.id}", "seconds": 0}}')
        dead = of(await effect_of(folder, chat.id), two)
        dead.kill()
        (folder / HELD).unlink()
        assert (await turn).end == "stop"
        assert (await chat.send("and now?")).end == "stop"
    done = [pid for pid, text in effects(folder) if text == chat.id]
    assert len(done) == 2
    assert done[0] == dead.pid != done[1]
