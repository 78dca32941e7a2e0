"""Positions: a new position is never lower than one that was already read."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from perdure.session.entries import Positioned
from perdure.session.ids import StreamId
from perdure.stores.postgres.store import PostgresStore
from tests.conformance.store.building import S, append, create, said
from tests.integration.postgres.conftest import Database, Open

WRITERS = 4
COMMITS = 40

SLOW = """
INSERT INTO perdure.entry (namespace, stream, seq, n, at, v, kind, salt, digest, body)
VALUES ('default', 'slow', 0, nextval('perdure.position'), 1, 1, 'note', 's', '', 'null')
"""


@pytest.fixture
def slow(address: str, db: Database) -> Database:
    """A connection inside a commit, which has taken a position but has not committed yet."""
    assert db.info.dsn
    connection = psycopg.connect(address)
    connection.execute("SELECT perdure.mark()")
    connection.execute(SLOW)
    return connection


def streams(found: list[Positioned]) -> list[str]:
    return [item.entry.stream for item in found]


async def test_feed_omits_entries_committed_after_an_unfinished_commit(
    store: PostgresStore, slow: Database
) -> None:
    with slow:
        await create(store, S, said("later"))
        assert await store.feed(0) == []
        assert await store.position() == 0
        slow.commit()

    found = await store.feed(0)
    assert streams(found) == ["slow", "s"]
    assert await store.position() == found[-1].position


async def test_aborted_commit_leaves_gap_in_feed(store: PostgresStore, slow: Database) -> None:
    with slow:
        await create(store, S, said("later"))
        assert await store.feed(0) == []
        slow.rollback()

    assert streams(await store.feed(0)) == ["s"]


async def test_feed_contains_entries_committed_before_an_unfinished_commit(
    store: PostgresStore, address: str
) -> None:
    await create(store, S, said("earlier"))
    with psycopg.connect(address) as slow:
        slow.execute("SELECT perdure.mark()")
        slow.execute(SLOW)

        assert streams(await store.feed(0)) == ["s"]
        assert await store.position() > 0
        slow.rollback()


async def test_transactions_of_other_programs_hide_no_entries(
    store: PostgresStore, db: Database
) -> None:
    with psycopg.connect(db.info.dsn) as other:
        other.execute("SELECT pg_current_xact_id(), pg_advisory_xact_lock_shared(7)")
        await create(store, S, said("now"))

        assert streams(await store.feed(0)) == ["s"]


async def test_waiter_wakes_when_hidden_entry_becomes_visible(
    store: PostgresStore, slow: Database
) -> None:
    changes = store.changes()
    with slow:
        await create(store, S, said("later"))
        while not await store.feed(0):
            await asyncio.wait_for(anext(changes), 60)
            slow.rollback()  # nobody is told of this

    assert streams(await store.feed(0)) == ["s"]


async def test_positions_of_one_commit_are_consecutive(store: PostgresStore) -> None:
    await create(store, S, *(said(str(number)) for number in range(600)))

    positions = [item.position for item in await store.feed(0, 1000)]
    assert len(positions) == 600
    assert positions == sorted(set(positions))
    assert positions[:256] == list(range(positions[0], positions[0] + 256))


async def test_reader_of_concurrent_writers_gets_all_positions_in_order(
    open_store: Open,
) -> None:
    stores = [await open_store() for _ in range(WRITERS)]
    reader = await open_store()
    for number, store in enumerate(stores):
        await create(store, StreamId(f"s{number}"))

    async def write(number: int, store: PostgresStore) -> None:
        for index in range(COMMITS):
            await append(store, StreamId(f"s{number}"), *[said(str(index))] * (index % 3 + 1))

    writing = asyncio.gather(*(write(number, store) for number, store in enumerate(stores)))
    seen: list[Positioned] = []
    while not writing.done():
        seen += await reader.feed(seen[-1].position if seen else 0)
    await writing
    seen += await reader.feed(seen[-1].position if seen else 0)

    assert seen == await reader.feed(0, 10_000)
    assert len(seen) == sum(index % 3 + 1 for index in range(COMMITS)) * WRITERS
