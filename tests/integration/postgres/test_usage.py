"""The counts of a namespace on PostgreSQL: advanced by reads, reset by erasures."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg import sql

from perdure.session.ids import StreamId
from perdure.stores.postgres.database import Database as PostgresDatabase
from perdure.stores.postgres.database import Statement
from perdure.stores.postgres.retention import usage
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from tests.conformance.store.building import S, append, create, erasure, header, said
from tests.conformance.store.scanned import Namespace
from tests.fakes.clock import START_MS
from tests.integration.postgres.conftest import Database, Open

STEPS = "create say create ask flow say fork close erase create remove say create erase say remove"


@pytest.fixture
def kept_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(usage, "MOST_BEHIND", -1)


@pytest.mark.usefixtures("kept_at_once")
async def test_usage_counts_are_exact_after_each_step_and_each_read(open_store: Open) -> None:
    namespace = Namespace(await open_store())
    for number, act in enumerate(STEPS.split()):
        await namespace.step(act, number * 3)
        await namespace.check_counts()
        await namespace.check_counts()


@pytest.mark.usefixtures("kept_at_once")
async def test_count_read_during_an_erasure_is_not_stored(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = await open_store(), await open_store()
    await create(store, S, *[said(f"{number}") for number in range(5)])
    real: Any = PostgresDatabase.ask
    erased: list[object] = []

    async def ask(self: Any, *statements: Statement) -> Any:
        if "SET position = %s" in statements[0][0] and not erased:
            erased.append(S)
            await other.retention.erase(erasure(S))
        return await real(self, *statements)

    monkeypatch.setattr(PostgresDatabase, "ask", ask)
    assert (await store.retention.quota())[1].sessions == 1

    assert erased
    assert (await store.retention.quota())[1].sessions == 0
    assert (await store.maintenance.verify()).problems == ()


@pytest.mark.usefixtures("kept_at_once")
async def test_usage_counts_are_exact_during_concurrent_calls(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    for number in range(6):
        await create(stores[0], f"s{number}", said("a"))

    async def work(store: PostgresStore, number: int) -> None:
        for turn in range(8):
            await append(store, StreamId(f"s{number}"), said(f"{turn}"))
            await store.info()
        await store.retention.erase(erasure(f"s{number + 3}", id=f"e{number}"))

    await asyncio.gather(*(work(store, number) for number, store in enumerate(stores)))

    info, (_, used) = await stores[0].info(), await stores[0].retention.quota()
    logs = [await stores[0].entries(StreamId(f"s{number}")) for number in range(6)]
    assert info.entries == sum(map(len, logs))
    assert used.entries == sum(not entry.is_erased for log in logs for entry in log)
    assert used.sessions == 3
    assert (await stores[0].maintenance.verify()).problems == ()


@pytest.mark.usefixtures("kept_at_once")
async def test_usage_counts_are_exact_despite_a_slow_transaction(
    open_store: Open, db: Database, address: str
) -> None:
    store = await open_store()
    await create(store, S, said("first"))
    (old,) = db.execute("SELECT last_value FROM perdure.position").fetchall()[0]
    await append(store, S, *[said("second") for _ in range(300)])
    await store.info()
    await store.search.index()
    with psycopg.connect(address) as delayed:
        delayed.execute("SELECT pg_advisory_xact_lock_shared((20581::bigint << 48) | %s)", (old,))
        await store.info()
        await store.search.index()
    await store.info()
    await store.search.index()
    assert (await store.maintenance.verify()).problems == ()
    assert (await store.info()).entries == 301


async def test_store_info_counts_only_entries_added_since_the_last_count(
    open_store: Open, db: Database
) -> None:
    store = await open_store()
    await create(store, S, *[said(f"{number}") for number in range(400)])
    await store.info()
    kept = db.execute("SELECT entries FROM perdure.usage").fetchall()
    await append(store, S, said("more"))

    assert [tuple(row) for row in kept] == [(400,)]
    assert db.execute("SELECT entries FROM perdure.usage").fetchall() == [(400,)]
    assert (await store.info()).entries == 401


async def test_verify_reports_a_wrong_usage_count(open_store: Open, db: Database) -> None:
    store = await open_store()
    await create(store, S, *[said(f"{number}") for number in range(400)])
    await store.info()
    for name in usage.NamespaceTotals._fields:
        column = sql.Identifier(name)
        more = sql.SQL("UPDATE perdure.usage SET {0} = {0} + %s").format(column)
        db.execute(more, (1,))
        problems = (await store.maintenance.verify()).problems
        assert len(problems) == 1
        assert name in problems[0].problem
        db.execute(more, (-1,))


@pytest.mark.usefixtures("kept_at_once")
async def test_count_of_content_bytes_is_exact_during_concurrent_vacuums(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    await create(stores[0], S, said("a"))

    async def work(store: PostgresStore, number: int) -> None:
        for turn in range(8):
            new = header(f"s{number}-{turn}")
            write = Write(stream=new.id, create=new)
            contents = (b"shared %d" % turn, b"own %d %d" % (number, turn))
            await store.commit(Commit(writes=(write,), at=START_MS, blobs=contents))
            await store.info()
            if turn % 4 == number:
                await store.maintenance.vacuum()

    await asyncio.gather(*(work(store, number) for number, store in enumerate(stores)))

    assert (await stores[0].maintenance.verify()).problems == ()
    await stores[0].info()
    assert (await stores[0].maintenance.verify()).problems == ()
    assert (await stores[0].maintenance.vacuum()).blobs > 0
    entries = await stores[0].entries(S)
    assert (await stores[0].info()).payload_bytes == sum(len(entry.body) for entry in entries)
