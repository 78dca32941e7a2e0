"""Opening databases in different states and with different roles."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import perdure
from perdure.apps.maintenance.commands import planned_migration
from perdure.apps.maintenance.copy import copy_sessions
from perdure.client.clock import SystemClock, system_random
from perdure.client.open import open as open_by_address
from perdure.client.open import open_copied
from perdure.errors import (
    ConfigError,
    NotAStore,
    StoreCorrupt,
    StoreReadOnly,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from perdure.session.ids import blob_hash
from perdure.stores.postgres.address import public_address, route_of
from perdure.stores.postgres.migrate import (
    UNRELEASED,
    first_version,
    latest_version,
    migrations,
)
from perdure.stores.postgres.store import PostgresStore, open_postgres
from perdure.stores.protocol import Commit, Write
from tests.conformance.store.building import S, append, create, said
from tests.fakes.clock import START_MS, ManualClock
from tests.fakes.postgres import PostgresServer, name_of
from tests.integration.postgres.conftest import Database, Open


@pytest.fixture
def fresh(postgres: PostgresServer) -> str:
    """A database without a store."""
    return postgres.new_database()


async def test_concurrent_openings_of_new_database_create_one_store(
    fresh: str, open_store: Open
) -> None:
    stores = await asyncio.gather(*(open_store(fresh) for _ in range(4)))

    await create(stores[0], S, said("a"))
    for store in stores:
        assert (await store.info()).schema_version == latest_version()
        assert len(await store.entries(S)) == 1


async def test_default_transaction_settings_of_the_server_have_no_effect(
    fresh: str, open_store: Open
) -> None:
    """A commit that waited must see the commits that it waited for, at any isolation level."""
    strict = f"{fresh}&options=-c%20default_transaction_isolation%3Dserializable"
    stores = await asyncio.gather(*(open_store(strict) for _ in range(4)))
    await create(stores[0], S, said("a"))

    await asyncio.gather(*(append(store, S, said("b")) for store in stores for _ in range(20)))

    assert len(await stores[0].entries(S)) == 81
    assert (await stores[0].maintenance.verify()).problems == ()


async def test_migration_rehearsal_lists_steps_and_changes_nothing(
    fresh: str, open_store: Open
) -> None:
    plan = await planned_migration(fresh)

    assert (plan.current, plan.latest) == (0, latest_version())
    assert len(plan.steps) == len(migrations())
    assert "@" not in plan.store.partition("@")[2]
    with psycopg.connect(fresh) as db:
        assert db.execute("SELECT to_regnamespace('perdure')").fetchall() == [(None,)]
    await open_store(fresh)
    assert (await planned_migration(fresh)).steps == ()


async def test_unreleased_schema_is_rejected_and_can_be_copied(
    fresh: str, open_store: Open
) -> None:
    await create(filled := await open_store(fresh), S, said("a"), said("b"))
    picture = said(f"media://{blob_hash(b'picture')}")
    write = Write(stream=S, entries=(picture,))
    await filled.commit(Commit(writes=(write,), at=START_MS, blobs=(b"picture",)))
    await filled.info()
    with psycopg.connect(fresh, autocommit=True) as db:
        db.execute("DELETE FROM perdure.schema_version WHERE version > %s", (first_version(),))
        db.execute("UPDATE perdure.schema_version SET version = %s", (UNRELEASED,))
        for change in (  # what that schema did not have
            "ALTER TABLE perdure.blob DROP COLUMN n",
            "ALTER TABLE perdure.usage DROP COLUMN content_bytes",
            "DROP INDEX perdure.entry_flow",
        ):
            db.execute(change)
        for use in (open_store, planned_migration):
            with pytest.raises(StoreTooOld) as refused:
                await use(fresh)
            assert (refused.value.version, refused.value.can_be_copied) == (UNRELEASED, True)
        async with (
            open_copied(fresh, namespace="default", lock_timeout_s=60) as source,
            perdure.open("memory:") as target,
        ):
            report = await copy_sessions(source, target)
            assert len(await target.backend.entries(S)) == 3
            assert await target.backend.blob(blob_hash(b"picture")) == b"picture"
        assert report.is_whole
        kept = db.execute("SELECT version FROM perdure.schema_version").fetchall()
        assert kept == [(UNRELEASED,)]

        db.execute("UPDATE perdure.schema_version SET version = %s", (UNRELEASED - 1,))
        with pytest.raises(StoreTooOld):
            async with open_copied(fresh, namespace="default", lock_timeout_s=60):
                pass


async def test_migration_rehearsal_works_on_a_read_only_database(fresh: str) -> None:
    plan = await planned_migration(f"{fresh}&options=-c%20default_transaction_read_only%3Don")

    assert len(plan.steps) == len(migrations())


async def test_schema_of_another_program_is_unchanged(fresh: str, open_store: Open) -> None:
    with psycopg.connect(fresh, autocommit=True) as db:
        db.execute("CREATE SCHEMA perdure CREATE TABLE theirs (x int)")
        with pytest.raises(NotAStore, match="another program"):
            await open_store(fresh)
        names = db.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'perdure'::regnamespace"
        ).fetchall()
    assert names == [("theirs",)]


async def test_existing_empty_schema_is_used(fresh: str, open_store: Open) -> None:
    with psycopg.connect(fresh, autocommit=True) as db:
        db.execute("CREATE SCHEMA perdure")

    await create(await open_store(fresh), S, said("a"))


async def test_store_of_newer_perdure_is_unchanged(db: Database, open_store: Open) -> None:
    db.execute("INSERT INTO perdure.schema_version VALUES (999)")
    try:
        with pytest.raises(StoreTooNew) as refused:
            await open_store()
    finally:
        db.execute("DELETE FROM perdure.schema_version WHERE version = 999")
    assert (refused.value.version, refused.value.supported) == (999, latest_version())


async def test_read_only_database_can_be_read(
    store: PostgresStore, db: Database, address: str, open_store: Open
) -> None:
    await create(store, S, said("a"))
    reader = await open_store(f"{address}&options=-c%20default_transaction_read_only%3Don")

    assert len(await reader.entries(S)) == 1
    with pytest.raises(StoreReadOnly):
        await append(reader, S, said("b"))


async def test_read_only_database_cannot_become_a_store(fresh: str, open_store: Open) -> None:
    with pytest.raises(StoreReadOnly):
        await open_store(f"{fresh}&options=-c%20default_transaction_read_only%3Don")


async def test_unreachable_server_raises_unavailable(open_store: Open) -> None:
    for wrong in ("/none?host=/nowhere", "127.0.0.1:1/none", "127.0.0.1:99999/none"):
        with pytest.raises(StoreUnavailable, match=r"is the server running\? Check host and port"):
            await open_store(f"postgresql://postgres@{wrong}")


async def test_missing_database_is_reported_by_name(address: str, open_store: Open) -> None:
    with pytest.raises(StoreUnavailable, match="no_such_database") as refused:
        await open_store(address.replace(name_of(address), "no_such_database"))
    assert "is the server running" not in str(refused.value)


async def test_schema_that_lacks_a_table_is_reported_as_damaged(
    fresh: str, open_store: Open
) -> None:
    store = await open_store(fresh)
    await create(store, S, said("a"))
    with psycopg.connect(fresh, autocommit=True) as db:
        db.execute("DROP TABLE perdure.alias")

    with pytest.raises(StoreCorrupt):
        await store.aliases(S)


@pytest.mark.parametrize("namespace", ["a\0b", "\ud800"])
async def test_namespace_invalid_in_postgresql_is_rejected(
    open_store: Open, namespace: str
) -> None:
    with pytest.raises(ConfigError):
        await open_store(namespace=namespace)


async def test_invalid_address_or_durability_is_rejected(address: str) -> None:
    for where, durability in (("postgresql://a b c", "full"), (address, "high")):
        with pytest.raises(ConfigError):
            await open_postgres(
                where,
                namespace="n",
                durability=durability,
                clock=SystemClock(),
                random=system_random,
            )


async def test_database_is_opened_by_either_form_of_its_address(address: str) -> None:
    for where in (address, address.replace("postgresql:", "postgres:", 1)):
        async with open_by_address(where, durability="normal") as store:
            session = await store.create(title="by address")
            assert (await store.open(session.id)).id == session.id


def test_password_in_a_database_address_is_never_shown() -> None:
    shown = public_address(
        route_of("postgresql://me:secret@db.example:5433/name?sslmode=disable").direct
    )

    assert shown == "postgresql://me@db.example:5433/name"


async def test_leases_use_server_clock_by_default(
    store: PostgresStore, open_store: Open, db: Database
) -> None:
    await create(store)
    row = db.execute("SELECT perdure.now_ms()").fetchone()
    assert row is not None

    lease = await store.acquire_lease(S, "me", 1_000)
    assert 1_000 <= lease.until - row[0] <= 60_000
    await store.release_lease(lease)

    by_hand = await open_store(clock=ManualClock())
    assert (await by_hand.acquire_lease(S, "me", 1_000)).until == START_MS + 1_000


async def test_address_can_override_the_default_timeouts(
    store: PostgresStore, address: str, open_store: Open
) -> None:
    other = await open_store(f"{address}&options=-c%20statement_timeout%3D7s")
    for one, expected in ((store, "1min"), (other, "7s")):
        async with one.handle.db.connection() as db:
            row = await (await db.execute("SHOW statement_timeout")).fetchone()
            assert row == (expected,)
