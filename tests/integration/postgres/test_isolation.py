"""Row-level security: a connection of one namespace sees nothing of another namespace."""

from __future__ import annotations

from typing import LiteralString

import psycopg
import pytest
from psycopg import errors, sql

from perdure.errors import StoreUnavailable
from perdure.session.codec import new_side, new_tree
from perdure.session.ids import StreamId
from perdure.session.kinds import ModelChange
from perdure.session.ledger import TurnStarted
from perdure.session.notes import Question
from perdure.session.search.parts.sizes import MOST_LOOSE
from perdure.stores.postgres.database import Statement
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Write
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.policy import Retention
from perdure.stores.retention.quotas import Quota
from perdure.stores.search.vectors import VectorModel
from tests.conformance.store.building import S, append, create, erasure, header, said
from tests.fakes.clock import START_MS
from tests.fakes.postgres import PostgresServer, name_of
from tests.integration.postgres.conftest import Database, Open

TABLES: tuple[LiteralString, ...] = (
    "stream",
    "birth",
    "entry",
    "state",
    "alias",
    "idempotency",
    "blob",
    "partial",
    "search",
    "search_mark",
    "search_page",
    "search_part",
    "search_model",
    "search_vector",
    "erasure",
    "retention",
    "quota",
    "backup",
    "open_question",
    "name_part",
    "usage",
    "work_class",
    "lost_work",
    "work_place",
    "live_watch",
    "live_delta",
    "upkeep",
)
OF_ALL = frozenset(
    {"schema_version", "worker", "cluster_count", "work_limit", "work_slot", "work_share"}
)
"""Tables that belong to no namespace."""


async def fill(store: PostgresStore) -> None:
    """Insert a row into every table."""
    await store.retention.set_policy(Retention(max_age_s=1))
    await store.retention.set_quota(Quota(max_sessions=1_000))
    await store.retention.remember_backup(Backup("/b", 1))
    new = (said("secret", alias="a"), new_tree(ModelChange("m:1")))
    write = Write(stream=S, create=header("s"), entries=new)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(b"blob",)))
    lease = await store.acquire_lease(S, "me", 60_000)
    await append(store, S, new_side(TurnStarted(1, "agent")), lease=lease, key="k")
    await store.put_partial(lease, 2, b"half")
    await create(store, "asks", new_side(Question("approval", "May I?", ("allow", "deny"))))
    await create(store, "gone")
    await store.retention.erase(erasure("gone"))
    await create(store, "many", *[said("some") for _ in range(MOST_LOOSE)])
    await store.search.reindex()
    await store.handle.db.ask_once(
        Statement("INSERT INTO perdure.work_class VALUES ('default', 'q', '{}')"),
        Statement("INSERT INTO perdure.lost_work VALUES ('default', 'w', 'worker')"),
        Statement("INSERT INTO perdure.work_place VALUES ('default', 'k')"),
        Statement("INSERT INTO perdure.live_watch VALUES ('default', 's', 'h', now())"),
        Statement("INSERT INTO perdure.live_delta VALUES ('default', 's', 1, 1, 1, now(), '')"),
        Statement("INSERT INTO perdure.upkeep VALUES ('default', 'retention')"),
    )
    model, read = VectorModel("m", 1), await store.search.unembedded(VectorModel("m", 1))
    rows = {found.position: b"\x7f" for found, _ in read.texts}
    assert await store.search.add_vectors(model, (read.before, read.end), rows)


def counts(db: Database) -> dict[str, int]:
    """Return the number of rows of each table that the connection sees."""
    found: dict[str, int] = {}
    for table in TABLES:
        row = db.execute(f"SELECT count(*) FROM perdure.{table}").fetchone()
        assert row is not None
        found[table] = row[0]
    return found


async def test_row_level_security_covers_every_table_and_owner(db: Database) -> None:
    rows = db.execute(
        "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class "
        "WHERE relnamespace = 'perdure'::regnamespace AND relkind IN ('r', 'p')"
    ).fetchall()

    assert {row[0] for row in rows} == {*TABLES, *OF_ALL}
    assert all(row[1:] == (True, True) for row in rows)


async def test_store_works_with_a_login_without_bypassrls(store: PostgresStore) -> None:
    async with store.handle.db.connection() as db:
        row = await (
            await db.execute(
                "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
            )
        ).fetchone()
    assert row == (False,)


async def test_raw_sql_with_another_namespace_returns_no_rows(
    store: PostgresStore, db: Database
) -> None:
    await fill(store)
    db.execute("SET ROLE perdure_app")

    db.execute("SET perdure.namespace = 'default'")
    assert min(counts(db).values()) >= 1
    db.execute("SET perdure.namespace = 'other'")
    assert set(counts(db).values()) == {0}
    db.execute("RESET perdure.namespace")
    assert set(counts(db).values()) == {0}


async def test_raw_sql_cannot_write_into_another_namespace(
    store: PostgresStore, db: Database
) -> None:
    await fill(store)
    db.execute("SET ROLE perdure_app")
    db.execute("SET perdure.namespace = 'other'")

    with pytest.raises(errors.InsufficientPrivilege):
        db.execute("INSERT INTO perdure.blob VALUES ('default', 'x', 1, 1, 'x')")
    changed = db.execute("UPDATE perdure.stream SET epoch = 9 WHERE namespace = 'default'")
    assert changed.rowcount == 0
    removed = db.execute("DELETE FROM perdure.partial WHERE namespace = 'default'")
    assert removed.rowcount == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE perdure.entry SET digest = ''",
        "DELETE FROM perdure.entry",
        "DELETE FROM perdure.stream",
        "UPDATE perdure.birth SET origin = NULL",
        "ALTER TABLE perdure.entry DISABLE ROW LEVEL SECURITY",
        "DROP TABLE perdure.blob",
    ],
)
async def test_database_role_of_programs_cannot_change_or_delete_entries(
    db: Database, statement: LiteralString
) -> None:
    db.execute("SET ROLE perdure_app")
    db.execute("SET perdure.namespace = 'default'")

    with pytest.raises(errors.InsufficientPrivilege):
        db.execute(statement)


@pytest.mark.parametrize("change", ["body = 'other'", "body = ''", "salt = NULL", "salt = 'x'"])
async def test_database_role_can_erase_an_entry_body_but_not_change_it(
    store: PostgresStore, db: Database, change: LiteralString
) -> None:
    await fill(store)
    db.execute("SET ROLE perdure_app")
    db.execute("SET perdure.namespace = 'default'")

    erased = db.execute("UPDATE perdure.entry SET salt = NULL, body = '' WHERE seq = 0")
    assert erased.rowcount > 0
    with pytest.raises(errors.InsufficientPrivilege):
        db.execute("UPDATE perdure.entry SET " + change + " WHERE seq > 0")


async def test_connection_keeps_no_namespace_between_transactions(
    store: PostgresStore,
) -> None:
    await fill(store)
    async with store.handle.db.connection() as db:
        row = await (
            await db.execute("SELECT current_setting('perdure.namespace', true)")
        ).fetchone()
        assert row in ((None,), ("",))


async def test_namespaces_in_one_database_stay_separate(open_store: Open) -> None:
    ours, theirs = await open_store(namespace="a"), await open_store(namespace="b")
    await create(ours, S, said("ours"))
    await create(theirs, S, said("theirs"))
    await create(theirs, StreamId("t"), said("only theirs"))

    assert [item.entry.id for item in await ours.feed(0)] == ["s/0"]
    assert (await ours.info()).streams == 1


async def test_login_with_the_database_role_can_read_and_append(
    store: PostgresStore, db: Database, address: str, open_store: Open, postgres: PostgresServer
) -> None:
    if not postgres.is_ours:
        pytest.skip("the named server may ask for passwords")
    await create(store, S, said("here"))
    name = "perdure_test_login"
    db.execute(f"DROP ROLE IF EXISTS {name}")
    db.execute(f"CREATE ROLE {name} LOGIN IN ROLE perdure_app")
    try:
        login = address.replace("postgres@", f"{name}@")
        there = await open_store(login)
        assert await there.entries(S) == await store.entries(S)
        await append(there, S, said("there"))
        await there.close()
        with (
            psycopg.connect(login, autocommit=True) as plain,
            pytest.raises(errors.InsufficientPrivilege),
        ):
            plain.execute("DELETE FROM perdure.entry")
    finally:
        db.execute(f"DROP ROLE {name}")


async def test_schema_owner_without_bypassrls_obeys_row_level_security(
    postgres: PostgresServer, open_store: Open
) -> None:
    if not postgres.is_ours:
        pytest.skip("the named server may ask for passwords")
    fresh, name = postgres.new_database(), "perdure_test_owner"
    with psycopg.connect(fresh, autocommit=True) as db:
        db.execute(f"DROP ROLE IF EXISTS {name}")
        db.execute(f"CREATE ROLE {name} LOGIN")
        statement = sql.SQL("ALTER DATABASE {} OWNER TO {}")
        db.execute(statement.format(sql.Identifier(name_of(fresh)), sql.Identifier(name)))
    owner = fresh.replace("postgres@", f"{name}@")
    await create(await open_store(owner), S, said("here"))

    with psycopg.connect(owner, autocommit=True) as plain:
        assert plain.execute("SELECT count(*) FROM perdure.entry").fetchone() == (0,)
        plain.execute("SET perdure.namespace = 'default'")
        assert plain.execute("SELECT count(*) FROM perdure.entry").fetchone() == (1,)


async def test_login_without_membership_raises_error_about_missing_grant(
    store: PostgresStore,
    db: Database,
    address: str,
    open_store: Open,
    postgres: PostgresServer,
) -> None:
    if not postgres.is_ours:
        pytest.skip("the named server may ask for passwords")
    assert store.address
    db.execute("DROP ROLE IF EXISTS perdure_test_stranger")
    db.execute("CREATE ROLE perdure_test_stranger LOGIN")
    try:
        with pytest.raises(StoreUnavailable, match="perdure_app"):
            await open_store(address.replace("postgres@", "perdure_test_stranger@"))
    finally:
        db.execute("DROP ROLE perdure_test_stranger")
