"""A store file with any schema object that perdure did not create is refused at every opening.

Each case changes a good store as a sender could: with a schema object that runs code, stores data,
or changes the meaning of perdure's statements. The schema object of a case never takes effect, and
the error names the object.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

import perdure
from perdure.apps.maintenance.backup import back_up
from perdure.apps.maintenance.commands import planned_migration
from perdure.apps.maintenance.copy import copy_sessions
from perdure.apps.maintenance.rekey import rekey_store
from perdure.apps.maintenance.repair import repair_store
from perdure.apps.maintenance.restore import restore_backup
from perdure.client.retention import set_quota
from perdure.errors import PerdureError, StoreSchemaForeign
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.manifest import (
    MANIFEST_NAME,
    STORE_NAME,
    encode_manifest,
    hash_of,
    read_manifest,
)
from perdure.stores.retention.quotas import Quota
from perdure.stores.sqlite import schema
from perdure.stores.sqlite.migrate import APPLICATION_ID, UNRELEASED, latest_version, migrations
from perdure.stores.sqlite.payload.cipher import unlock
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.raw_database import raw_database
from tests.fakes.samples import ALL_ONLY
from tests.fakes.streams import create, say

KEY = StoreKey(b"\x03" * 32)
SECRET = "erased-text-4711"

HANG = """
CREATE TRIGGER evil BEFORE INSERT ON entry BEGIN
    INSERT INTO kind (no, name) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
        SELECT i, i FROM n WHERE i < 0;
END"""
COPY = """
CREATE TABLE hidden (body);
CREATE TRIGGER evil AFTER INSERT ON entry BEGIN INSERT INTO hidden VALUES (NEW.body); END"""


def schema_edit(where: str, change: str) -> str:
    """SQL that changes rows of the schema itself."""
    return f"""
PRAGMA writable_schema = ON; UPDATE sqlite_schema SET {change} WHERE {where};
PRAGMA writable_schema = RESET"""


def swapped(old: str, new: str, where: str) -> str:
    """SQL that replaces words of our own statements."""
    return schema_edit(where, f"sql = replace(sql, '{old}', '{new}')")


FORMS = {
    "trigger-before-insert": (HANG, "evil"),
    "trigger-and-hidden-table": (COPY, "evil"),
    "trigger-on-delete": (
        "CREATE TRIGGER evil BEFORE DELETE ON blob BEGIN SELECT RAISE(IGNORE); END",
        "evil",
    ),
    "trigger-on-update": (
        """CREATE TRIGGER evil AFTER UPDATE ON entry BEGIN
        UPDATE entry SET body = OLD.body WHERE n = OLD.n; END""",
        "evil",
    ),
    "trigger-named-as-of-a-quota": (
        "CREATE TRIGGER quota_entry_made AFTER INSERT ON entry BEGIN DELETE FROM alias; END",
        "quota_entry_made",
    ),
    "hidden-table": (f"CREATE TABLE hidden (x); INSERT INTO hidden VALUES ('{SECRET}')", "hidden"),
    "table-with-the-name-of-a-statistic": (
        f"CREATE TABLE stat (x); INSERT INTO stat VALUES ('{SECRET}')",
        "stat",
    ),
    "view": ("CREATE VIEW evil AS SELECT body FROM entry", "evil"),
    "view-with-instead-of": (
        """CREATE VIEW evil AS SELECT 1 AS x;
        CREATE TRIGGER evil_insert INSTEAD OF INSERT ON evil BEGIN DELETE FROM entry; END""",
        "evil",
    ),
    "view-in-place-of-a-table": (
        "ALTER TABLE alias RENAME TO hidden; CREATE VIEW alias AS SELECT * FROM hidden",
        "alias",
    ),
    "index-on-an-expression": ("CREATE INDEX evil ON entry (hex(body))", "evil"),
    "unique-index": ("CREATE UNIQUE INDEX evil ON stream (kind)", "evil"),
    "virtual-table": ("CREATE VIRTUAL TABLE evil USING fts5 (x)", "evil"),
    "virtual-table-rtree": ("CREATE VIRTUAL TABLE evil USING rtree (a, b, c)", "evil"),
    "generated-column": ("ALTER TABLE blob ADD COLUMN x BLOB AS (hex(content))", "blob"),
    "column-with-a-default": (
        "ALTER TABLE stream ADD COLUMN x TEXT DEFAULT 'evil'",
        "stream",
    ),
    "renamed-column": ("ALTER TABLE partial RENAME COLUMN content TO said", "partial"),
    "missing-table": ("DROP TABLE alias", "alias"),
    "missing-index": ("DROP INDEX entry_note", "entry_note"),
    "statistics": ("CREATE TABLE t (x); ANALYZE; DROP TABLE t", "sqlite_stat1"),
    "changed-check": (
        swapped(
            "body     BLOB NOT NULL",
            "body     BLOB NOT NULL CHECK (length(body) >= 0)",
            "name = ''entry''".replace("''", "'"),
        ),
        "entry",
    ),
    "changed-collation": (
        swapped("name TEXT NOT NULL UNIQUE", "name TEXT NOT NULL  UNIQUE", "name = 'namespace'"),
        "namespace",
    ),
    "table-on-the-pages-of-another": (
        schema_edit(
            "name = 'birth'",
            "rootpage = (SELECT rootpage FROM sqlite_schema WHERE name = 'state')",
        ),
        "page",
    ),
    "utf-16-and-no-table": ("UTF16", "encoding"),
    "page-size": ("PRAGMA journal_mode = DELETE; PRAGMA page_size = 1024; VACUUM", "page"),
    "no-version": ("PRAGMA user_version = 0", "version 0"),
    "ten-thousand-tables": (
        ";".join(f"CREATE TABLE t{number} (x)" for number in range(10_000)),
        "t",
    ),
}


async def good_store(path: Path, key: StoreKey | None = None) -> Path:
    store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(1), key=key)
    await create(store)
    await say(store, "hello")
    await store.close()
    return path


def tamper(path: Path, sql: str) -> None:
    if sql == "UTF16":
        path.unlink()
        with raw_database(path) as db:
            db.pragma("encoding", "UTF-16le")
            db.execute(f"CREATE TABLE t (x); DROP TABLE t; PRAGMA application_id={APPLICATION_ID}")
        return
    with raw_database(path) as db:
        db.execute(f"BEGIN; {sql}; COMMIT" if "PRAGMA" not in sql else sql).fetchall()


def address(path: Path) -> str:
    return f"sqlite:///{path}"


async def verify(path: Path) -> None:
    async with perdure.open(address(path)) as store:
        await store.verify()


async def copy_from(path: Path) -> None:
    async with (
        perdure.open(address(path)) as source,
        perdure.open(address(path.with_name("copied.db"))) as target,
    ):
        await copy_sessions(source, target)


async def copy_into(path: Path) -> None:
    other = await good_store(path.with_name("other.db"))
    async with perdure.open(address(other)) as source, perdure.open(address(path)) as target:
        await copy_sessions(source, target)


async def restore_of(path: Path) -> None:
    """Restore a backup whose file was changed, with a manifest of the changed file."""
    good = await good_store(path.with_name("origin.db"))
    folder = path.with_name("backup")
    await back_up(address(good), folder)
    shutil.copyfile(path, folder / STORE_NAME)
    size, digest = hash_of(folder / STORE_NAME)
    manifest = msgspec.structs.replace(read_manifest(folder), bytes=size, sha256=digest)
    (folder / MANIFEST_NAME).write_bytes(encode_manifest(manifest))
    try:
        await restore_backup(folder, address(path.with_name("restored.db")))
    finally:
        assert not path.with_name("restored.db").exists()


ROUTES: dict[str, Callable[[Path], Awaitable[object]]] = {
    "open": verify,
    "backup": lambda path: back_up(address(path), path.with_name("made")),
    "copy-from": copy_from,
    "copy-into": copy_into,
    "rekey": lambda path: rekey_store(address(path), KEY),
    "migrate": lambda path: planned_migration(address(path)),
    "restore": restore_of,
}


@pytest.mark.parametrize(
    "form",
    [pytest.param(form, marks=ALL_ONLY if form == "ten-thousand-tables" else ()) for form in FORMS],
)
async def test_foreign_schema_is_refused_and_the_error_describes_it(
    form: str, tmp_path: Path
) -> None:
    sql, name = FORMS[form]
    path = await good_store(tmp_path / "received.db")
    tamper(path, sql)
    before = path.read_bytes()
    with pytest.raises(StoreSchemaForeign) as refused:
        await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(2))
    assert name in refused.value.reason
    assert path.read_bytes() == before


@pytest.mark.parametrize("is_copied", [False, True])
async def test_foreign_schema_is_refused_even_if_a_store_is_only_read(
    tmp_path: Path, *, is_copied: bool
) -> None:
    path = await good_store(tmp_path / "received.db")
    tamper(path, COPY)
    if not is_copied:
        path.chmod(0o444)
    with pytest.raises(StoreSchemaForeign):
        await SqliteStore.open(
            path, clock=ManualClock(), random=SeededRandom(2), is_copied=is_copied
        )


@pytest.mark.parametrize("route", ROUTES)
async def test_foreign_schema_is_refused_by_every_way_to_open_a_store(
    route: str, tmp_path: Path
) -> None:
    path = await good_store(tmp_path / "received.db")
    tamper(path, COPY)
    before = path.read_bytes()
    with pytest.raises(StoreSchemaForeign, match="'evil' on 'entry', holds table 'hidden'"):
        await ROUTES[route](path)
    assert path.read_bytes() == before


async def test_encrypted_store_with_a_foreign_schema_is_refused(tmp_path: Path) -> None:
    path = await good_store(tmp_path / "received.db", KEY)
    with raw_database(path) as db:
        unlock(db, KEY)
        db.execute(HANG)
    with pytest.raises(StoreSchemaForeign, match="'evil'"):
        await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(2), key=KEY)


async def test_schema_in_the_write_ahead_log_is_refused(tmp_path: Path) -> None:
    path = await good_store(tmp_path / "origin.db")
    received = tmp_path / "received.db"
    with raw_database(path) as db:
        db.execute(HANG)
        for end in ("", "-wal"):
            shutil.copyfile(f"{path}{end}", f"{received}{end}")
    with pytest.raises(StoreSchemaForeign, match="'evil'"):
        await verify(received)


async def test_refused_schema_does_not_stay_in_memory(tmp_path: Path) -> None:
    path = await good_store(tmp_path / "received.db")
    tamper(path, f"CREATE VIEW evil AS SELECT '{SECRET * 5_000}'")
    with pytest.raises(StoreSchemaForeign, match="'evil'"):
        await verify(path)
    assert schema.digest_of.cache_info().currsize == 0


async def test_foreign_schema_added_to_an_open_store_is_rejected(
    tmp_path: Path,
) -> None:
    path = await good_store(tmp_path / "received.db")
    store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(2))
    tamper(path, HANG)
    with pytest.raises(StoreSchemaForeign, match="'evil'"):
        await say(store, "more")
    await store.close()


async def test_repair_keeps_sessions_and_removes_a_foreign_schema(tmp_path: Path) -> None:
    path = await good_store(tmp_path / "received.db")
    tamper(path, f"{COPY}; INSERT INTO hidden VALUES ('{SECRET}')")
    done = await repair_store(address(path))
    assert done.is_damaged
    assert (done.streams, done.entries) == (1, 1)
    assert SECRET.encode() not in path.read_bytes()
    await verify(path)


async def test_verification_fails_if_a_usage_trigger_is_missing(
    tmp_path: Path,
) -> None:
    path = await good_store(tmp_path / "own.db")
    async with perdure.open(address(path)) as store:
        await set_quota(store, Quota(max_sessions=3))
    await verify(path)
    with raw_database(path) as db:
        db.execute("DROP TRIGGER usage_content_made")
    with pytest.raises(StoreSchemaForeign, match="usage_content_made"):
        await verify(path)


def test_migrations_produce_the_recorded_digest_of_each_schema() -> None:
    made = {number: schema.digest_of(schema.made_by(number)) for number in migrations()}
    assert schema.DIGESTS[latest_version()] == made[latest_version()]
    assert schema.DIGESTS.keys() == {UNRELEASED, *made}
    assert schema.DIGESTS.items() >= made.items()


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "link-to-nothing", "pipe", "folder"])
async def test_irregular_file_beside_a_store_is_not_touched(
    end: str, kind: str, tmp_path: Path
) -> None:
    path = await good_store(tmp_path / "received.db")
    precious = tmp_path / "precious.txt"
    precious.write_text(SECRET)
    beside = path.with_name(path.name + end)
    if kind == "pipe":
        os.mkfifo(beside)
    elif kind == "folder":
        beside.mkdir()
    else:
        beside.symlink_to(precious if kind == "link" else tmp_path / "new.txt")
    async with asyncio.timeout(60):
        for work in (lambda: use(path), lambda: repair_store(address(path))):
            with suppress(PerdureError):
                await work()
    assert precious.read_text() == SECRET
    assert not (tmp_path / "new.txt").exists()


async def use(path: Path) -> None:
    store = await SqliteStore.open(path, clock=ManualClock(), random=SeededRandom(2))
    try:
        await say(store, "more")
    finally:
        await store.close()
