"""Databases of other programs: plain tables, values in JSON form, and read-only access."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.errors import FormatError, LimitExceeded
from perdure.interop.formats.sources.database import MAGIC, Database
from tests.fakes.databases import make_database

SCHEMA = 'CREATE TABLE notes (id INTEGER PRIMARY KEY, "odd ""name" TEXT, data BLOB)'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "notes #1?.db"
    make_database(found, SCHEMA, [("notes", {"id": 1, "data": b"\x00\xff"})])
    with closing(sqlite3.connect(found)) as database:
        database.execute("INSERT INTO notes VALUES (2, CAST(x'ff' AS TEXT), 1.5)")
        database.execute("INSERT INTO notes VALUES (3, 'é', NULL)")
        database.commit()
    return found


def test_rows_have_every_column_in_a_json_form(path: Path) -> None:
    with Database(path) as database:
        assert list(database.rows("notes", order="id")) == [
            {"id": 1, 'odd "name': None, "data": {"base64": "AP8="}},
            {"id": 2, 'odd "name': {"base64": "/w=="}, "data": 1.5},
            {"id": 3, 'odd "name': "é", "data": None},
        ]
        assert [row["id"] for row in database.rows("notes", "id > ?", (2,))] == [3]


def test_tables_are_recognized_by_their_columns(path: Path) -> None:
    with Database(path) as database:
        assert database.has({"notes": ("id", "data")})
        assert not database.has({"notes": ("id", "text")})
        assert not database.has({"other": ("id",)})


def test_reading_a_database_does_not_change_it(path: Path) -> None:
    before = path.read_bytes()
    assert before.startswith(MAGIC)
    with Database(path) as database:
        list(database.rows("notes"))
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_error_for_a_large_value_contains_the_limit_name(path: Path) -> None:
    make_database(path, SCHEMA, [("notes", {"id": 4, "data": "x" * 2_000})])
    before = limits()
    use_input_limits(InputLimits(import_line_bytes=1_000))
    try:
        with Database(path) as database, pytest.raises(LimitExceeded, match="import_line_bytes"):
            list(database.rows("notes"))
    finally:
        use_input_limits(before)


def test_file_that_is_not_a_database_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    for content in (MAGIC, MAGIC + b"\x10\x00" + b"\x01" * 500):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="SQLite cannot read it"):
            Database(path)
    with pytest.raises(FormatError):
        Database(tmp_path / "missing.db")
