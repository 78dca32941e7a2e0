"""Migrate the schema with numbered SQL files; one transaction runs a file and stores its number.

A released file is never edited; a change is a new file. An advisory lock ensures that only one
program at a time checks and changes the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from psycopg import AsyncConnection, IsolationLevel

from perdure.errors import (
    NotAStore,
    StoreReadOnly,
    StoreTooNew,
    StoreTooOld,
    StoreUnavailable,
)
from perdure.stores.maintenance.protocol import MigrationPlan, purpose
from perdure.stores.postgres.address import DIRECT
from perdure.stores.postgres.rows import Row

APP_ROLE = "perdure_app"
"""The role that row-level security restricts.

The first migration creates this role if permitted.
"""

OLDEST_SERVER = 140_000

_FOLDER = Path(__file__).parent / "migrations"
_LOCK = "SELECT pg_advisory_xact_lock((20582::bigint << 48))"

_SITE = """
SELECT current_setting('server_version_num')::int,
    current_setting('server_encoding'),
    current_setting('transaction_read_only') = 'on',
    r.rolsuper OR r.rolbypassrls,
    EXISTS (SELECT FROM pg_roles WHERE rolname = 'perdure_app'),
    to_regnamespace('perdure') IS NOT NULL,
    EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('perdure')),
    EXISTS (
        SELECT FROM pg_class
        WHERE relnamespace = to_regnamespace('perdure') AND relname = 'schema_version'
    ),
    pg_backend_pid()
FROM pg_roles AS r WHERE r.rolname = current_user
"""

UNRELEASED = 12
"""The last schema before the first release. A store with this schema can be copied."""


class Site(NamedTuple):
    """Facts about a database, which are read before the store opens it.

    `is_free` means that perdure's role bypasses row-level security.
    """

    server: int
    encoding: str
    is_read_only: bool
    is_free: bool
    has_role: bool
    has_schema: bool
    has_content: bool
    has_version: bool
    process: int


@cache
def migrations() -> dict[int, str]:
    """Return each schema version, in order, with the SQL that leads to it from the previous one."""
    files = sorted(_FOLDER.glob("*.sql"))
    return {int(file.name.partition("_")[0]): file.read_text("utf-8") for file in files}


def first_version() -> int:
    """Return the oldest schema version that this program can migrate."""
    return min(migrations())


def latest_version() -> int:
    """Return the newest schema version that this program supports."""
    return max(migrations())


async def prepare_schema(
    db: AsyncConnection[Row], store: str, *, is_copied: bool = False
) -> str | None:
    """Migrate the database to the newest schema; return the role to use (None: the current role).

    With `is_copied`, a store with the last schema before the first release (`UNRELEASED`) is not
    migrated.
    Durable: each step is applied completely or not at all.
    Raises: NotAStore, StoreTooNew, StoreTooOld, StoreReadOnly, StoreUnavailable; after an error the
    database is unchanged.
    """
    # Whatever the server's default: after waiting for the lock, concurrent changes must be visible.
    await db.set_isolation_level(IsolationLevel.READ_COMMITTED)
    site = await _site(db)
    if site.process != db.info.backend_pid:
        raise StoreUnavailable(
            store,
            "the address leads to a connection pooler: name the server behind it, too, with "
            f"?{DIRECT}=HOST:PORT, for locks and notifications",
            is_lasting=True,
        )
    _check_site(site, store)
    version = await _version(db, site)
    _check_version(version, store, is_copied=is_copied)
    if version < latest_version() and not (is_copied and version == UNRELEASED):
        if site.is_read_only:
            raise StoreReadOnly(store)
        await _migrate(db, store)
        site = await _site(db)
    if not site.is_free:
        return None
    if not site.has_role:
        raise StoreUnavailable(
            store,
            f"there is no role {APP_ROLE}, and row-level security does not bind this user",
            is_lasting=True,
        )
    return APP_ROLE


def _check_version(version: int, store: str, *, is_copied: bool = False) -> None:
    """Reject unknown schemas. Raises: StoreTooNew, StoreTooOld."""
    if version > latest_version():
        raise StoreTooNew(store, version, latest_version())
    if 0 < version < first_version() and not (is_copied and version == UNRELEASED):
        can_be_copied = version == UNRELEASED
        raise StoreTooOld(store, version, first_version(), can_be_copied=can_be_copied)


def _check_site(site: Site, store: str) -> None:
    if site.server < OLDEST_SERVER:
        needed = f"it needs PostgreSQL {OLDEST_SERVER // 10_000} or newer"
        raise StoreUnavailable(store, needed, is_lasting=True)
    if site.encoding != "UTF8":
        raise NotAStore(store, f"the encoding of the database is {site.encoding}, not UTF8")
    if site.has_content and not site.has_version:
        raise NotAStore(store, "its schema perdure is another program's")


async def _site(db: AsyncConnection[Row]) -> Site:
    row = await (await db.execute(_SITE)).fetchone()
    assert row is not None  # every connection has a role
    return Site(*row)


async def _version(db: AsyncConnection[Row], site: Site) -> int:
    if not site.has_version:
        return 0
    row = await (await db.execute("SELECT max(version) FROM perdure.schema_version")).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


async def rehearse_migration(db: AsyncConnection[Row], store: str) -> MigrationPlan:
    """Run the migrations of `prepare_schema` in one transaction and roll it back.

    A read-only database is only inspected.
    Raises: NotAStore, StoreTooNew, StoreUnavailable; after an error the database is unchanged.
    """
    async with db.transaction(force_rollback=True):
        await db.execute(_LOCK)
        site = await _site(db)
        _check_site(site, store)
        current = await _version(db, site)
        _check_version(current, store)
        missing = {version: sql for version, sql in migrations().items() if version > current}
        if not site.is_read_only:
            await _apply(db, site, missing)
    steps = tuple(f"schema {version}: {purpose(sql)}" for version, sql in missing.items())
    return MigrationPlan(store, current, latest_version(), steps)


async def _migrate(db: AsyncConnection[Row], store: str) -> None:
    for version, sql in migrations().items():
        async with db.transaction():
            await db.execute(_LOCK)
            site = await _site(db)
            _check_site(site, store)
            if await _version(db, site) < version:
                await _apply(db, site, {version: sql})


async def _apply(db: AsyncConnection[Row], site: Site, steps: Mapping[int, str]) -> None:
    if steps and not site.has_schema:
        await db.execute("CREATE SCHEMA perdure")
    for version, sql in steps.items():
        # As bytes: the text comes from a file of the package, not from a user.
        await db.execute(sql.encode(), prepare=False)
        await db.execute("INSERT INTO perdure.schema_version VALUES (%s)", (version,))
