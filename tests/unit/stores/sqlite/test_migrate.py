"""Migrations are numbered, and each is applied once and atomically."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import apsw
import pytest

from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.sqlite import migrate
from perdure.stores.sqlite.migrate import (
    APPLICATION_ID,
    UNRELEASED,
    first_version,
    latest_version,
    migrations,
    version_of,
)


@pytest.fixture
def db() -> Iterator[Connection]:
    db = cast("Connection", apsw.Connection(":memory:"))
    yield db
    db.close()


def schema_of(db: Connection) -> list[object]:
    return list(db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name"))


def test_migration_numbers_have_no_gap() -> None:
    assert first_version() == UNRELEASED + 1
    assert list(migrations()) == list(range(first_version(), latest_version() + 1))


def test_empty_database_is_migrated_to_newest_schema(db: Connection) -> None:
    migrate.migrate(db)

    assert version_of(db) == latest_version()
    assert db.pragma("application_id") == APPLICATION_ID


def test_second_migration_changes_nothing(db: Connection) -> None:
    migrate.migrate(db)
    before = schema_of(db)
    migrate.migrate(db)

    assert schema_of(db) == before
    assert not db.in_transaction


def test_only_missing_migrations_are_applied(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.migrate(db)
    newest = latest_version()
    steps = {newest + 1: "CREATE TABLE second (x)", newest + 2: "ALTER TABLE second ADD y"}
    monkeypatch.setattr(migrate, "migrations", lambda: {1: "nonsense", **steps})
    migrate.migrate(db)

    assert version_of(db) == newest + 2
    assert list(db.execute("SELECT x, y FROM second")) == []


def test_failed_migration_keeps_previous_version(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.migrate(db)
    newest = latest_version()
    steps = {newest + 1: "CREATE TABLE second (x); CREATE TABLE second (x)"}
    monkeypatch.setattr(migrate, "migrations", lambda: steps)
    with pytest.raises(apsw.SQLError):
        migrate.migrate(db)

    assert version_of(db) == newest
    assert not db.in_transaction
    with pytest.raises(apsw.SQLError):
        db.execute("SELECT * FROM second")


def test_index_of_entries_outside_the_tree_omits_frequent_kinds(db: Connection) -> None:
    migrate.migrate(db)
    frequent = {row[0] for row in db.execute("SELECT name FROM kind WHERE no < 32")}

    assert frequent >= {"message", "model_called", "tool_started", "tool_finished"}
    assert list(db.execute("SELECT name FROM kind WHERE no = 32")) == [("turn_started",)]
