"""Transactions and defenses of an SQLite connection."""

from __future__ import annotations

from typing import Any, cast

import apsw
import pytest

from perdure.stores.access.sqlite_connection import Connection, SqlRows, harden, transaction


@pytest.fixture
def db() -> Connection:
    db = cast("Connection", apsw.Connection(":memory:"))
    db.execute("CREATE TABLE word (text TEXT PRIMARY KEY)")
    return db


def add(db: Connection, *texts: str) -> None:
    for text in texts:
        db.execute("INSERT OR ROLLBACK INTO word VALUES (?)", (text,))


def add_and_fail(db: Connection, text: str) -> None:
    add(db, text)
    raise KeyError(text)


def test_transaction_that_sqlite_rolled_back_raises_the_first_error(db: Connection) -> None:
    with pytest.raises(apsw.ConstraintError), transaction(db):
        add(db, "a", "a")
    assert not db.in_transaction
    assert SqlRows(db).value("SELECT count(*) FROM word") == 0


@pytest.mark.parametrize("is_kept", [True, False])
def test_transaction_with_an_error_is_rolled_back(db: Connection, *, is_kept: bool) -> None:
    with transaction(db, is_kept=is_kept):
        add(db, "a")
    with pytest.raises(KeyError), transaction(db, is_kept=is_kept):
        add_and_fail(db, "b")
    assert list(SqlRows(db).rows("SELECT text FROM word")) == [("a",)] * is_kept


def test_hardened_connection_runs_no_function_named_in_the_schema_of_a_file() -> None:
    plain: Any = apsw.Connection(":memory:")  # its annotations are incomplete
    plain.create_scalar_function("act", lambda: 1)
    plain.execute("CREATE TABLE word (text); CREATE TABLE other (text)")
    plain.execute(
        "CREATE TRIGGER t AFTER INSERT ON word BEGIN INSERT INTO other VALUES (act()); END"
    )
    harden(plain)
    with pytest.raises(apsw.SQLError, match="unsafe use of act"):
        plain.execute("INSERT INTO word VALUES ('a')")
