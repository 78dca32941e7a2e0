"""Schema versions: numbered SQL files, each applied in one transaction with its number.

A released file is never edited; a change is a new file. An advisory lock lets only one program at a
time check and change the version.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import LiteralString, NamedTuple

from psycopg import AsyncConnection, IsolationLevel

from perdure.errors import NotAStore, StoreReadOnly, StoreTooNew, StoreUnavailable
from perdure.stores.maintenance.protocol import MigrationPlan, purpose
from perdure.stores.name_parts import parts_of
from perdure.stores.postgres.rows import Row, info_of_row

APP_ROLE = "perdure_app"
"""The role that row-level security binds; made by the first migration where that is allowed."""

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
    )
FROM pg_roles AS r WHERE r.rolname = current_user
"""

_NAMES = 12
"""The first schema with name parts."""

_AT_ONCE = 500
"""Number of sessions whose parts are added at a time."""

_OWNER_SEES_ALL: LiteralString = """
ALTER TABLE perdure.stream NO FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.name_part NO FORCE ROW LEVEL SECURITY;
"""

_OWNER_SEES_ONE: LiteralString = """
ALTER TABLE perdure.stream FORCE ROW LEVEL SECURITY;
ALTER TABLE perdure.name_part FORCE ROW LEVEL SECURITY;
"""

_ALL_SESSIONS: LiteralString = """
SELECT namespace, id, info FROM perdure.stream
WHERE kind = 'session' AND NOT is_erased AND (namespace, id) > (%s, %s)
ORDER BY namespace, id LIMIT %s
"""

_ADD_ALL: LiteralString = """
INSERT INTO perdure.name_part
SELECT p.namespace, p.part, p.stream
FROM unnest(%s::text[], %s::bytea[], %s::text[]) AS p (namespace, part, stream)
"""


class Site(NamedTuple):
    """What a database is before the store looks into it. `is_free`: security does not bind us."""

    server: int
    encoding: str
    is_read_only: bool
    is_free: bool
    has_role: bool
    has_schema: bool
    has_content: bool
    has_version: bool


@cache
def migrations() -> dict[int, str]:
    """Return schema version -> the SQL that leads to it from the previous one, in order."""
    files = sorted(_FOLDER.glob("*.sql"))
    return {int(file.name.partition("_")[0]): file.read_text("utf-8") for file in files}


def latest_version() -> int:
    """Return the newest schema version this program supports."""
    return max(migrations())


async def prepare_schema(db: AsyncConnection[Row], store: str) -> str | None:
    """Migrate the database to the newest schema; return the role to use, None for the current one.

    Durable: each step is applied completely or not at all.
    Raises: NotAStore, StoreTooNew, StoreReadOnly, StoreUnavailable; nothing was changed then.
    """
    # Whatever the server's default: after waiting for the lock, concurrent changes must be visible.
    await db.set_isolation_level(IsolationLevel.READ_COMMITTED)
    site = await _site(db)
    _check_site(site, store)
    version = await _version(db, site)
    if version > latest_version():
        raise StoreTooNew(store, version, latest_version())
    if version < latest_version():
        if site.is_read_only:
            raise StoreReadOnly(store)
        await _migrate(db, store)
        site = await _site(db)
    if not site.is_free:
        return None
    if not site.has_role:
        raise StoreUnavailable(
            store, f"there is no role {APP_ROLE}, and row-level security does not bind this user"
        )
    return APP_ROLE


def _check_site(site: Site, store: str) -> None:
    if site.server < OLDEST_SERVER:
        raise StoreUnavailable(store, f"it needs PostgreSQL {OLDEST_SERVER // 10_000} or newer")
    if site.encoding != "UTF8":
        raise NotAStore(store, f"the encoding of the database is {site.encoding}, not UTF8")
    if site.has_content and not site.has_version:
        raise NotAStore(store, "its schema perdure is another program's")


async def _site(db: AsyncConnection[Row]) -> Site:
    row = await (await db.execute(_SITE)).fetchone()
    assert row is not None  # who is connected has a role
    return Site(*row)


async def _version(db: AsyncConnection[Row], site: Site) -> int:
    if not site.has_version:
        return 0
    row = await (await db.execute("SELECT max(version) FROM perdure.schema_version")).fetchone()
    return 0 if row is None or row[0] is None else int(row[0])


async def rehearse_migration(db: AsyncConnection[Row], store: str) -> MigrationPlan:
    """What `prepared` would do to the schema: done in one transaction, and taken back.

    A database that cannot be written is only looked at.
    Raises: NotAStore, StoreTooNew, StoreUnavailable; nothing is changed.
    """
    async with db.transaction(force_rollback=True):
        await db.execute(_LOCK)
        site = await _site(db)
        _check_site(site, store)
        current = await _version(db, site)
        if current > latest_version():
            raise StoreTooNew(store, current, latest_version())
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
        # As bytes: the text comes from a file of the package, not from anybody.
        await db.execute(sql.encode(), prepare=False)
        if version == _NAMES:
            await _list_all(db)
        await db.execute("INSERT INTO perdure.schema_version VALUES (%s)", (version,))


async def _list_all(db: AsyncConnection[Row]) -> None:
    """Add the sessions of a database without name parts to the index of lists."""
    await db.execute(_OWNER_SEES_ALL, prepare=False)
    last = ("", "")
    while True:
        answer = await db.execute(_ALL_SESSIONS, (*last, _AT_ONCE))
        rows = await answer.fetchall()
        added = [
            (namespace, part, id_)
            for namespace, id_, info in rows
            for part in sorted(parts_of(info_of_row(id_, info)))
        ]
        if added:
            namespaces, parts, streams = zip(*added, strict=True)
            await db.execute(_ADD_ALL, (list(namespaces), list(parts), list(streams)))
        if len(rows) < _AT_ONCE:
            break
        last = rows[-1][:2]
    await db.execute(_OWNER_SEES_ONE, prepare=False)
