"""The text lines that represent database rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.codecs.fields import fields_of
from perdure.codecs.lines import read_line
from perdure.errors import LimitExceeded
from perdure.interop.formats.databases.row_lines import (
    DatabaseFormat,
    json_in,
    row_line,
    session_content,
    table_of,
)
from perdure.interop.formats.sources.database import Database
from tests.fakes.databases import make_database


def lines(database: Database, id: str) -> Iterator[bytes]:
    for row in database.rows("notes", "id = ?", (id,)):
        yield row_line("x", "notes", row)


FORMAT = DatabaseFormat({"notes": ("id",)}, ("notes.db",), lambda _: iter(()), lines)


def test_line_of_a_database_row_contains_its_program_and_table() -> None:
    line = row_line("x", "notes", {"id": 1, "text": "é"})
    fields = fields_of(read_line(line).value) or {}
    assert (table_of(fields, "x"), table_of(fields, "y")) == ("notes", None)
    assert fields["row"] == {"id": 1, "text": "é"}
    assert table_of({"program": "x", "table": "notes"}, "x") is None


def test_valid_json_in_a_column_is_decoded() -> None:
    row = {"good": '{"a":[1]}', "bad": "{", "none": None, "deep": "[" * 100_000}
    assert [json_in(row, name) for name in row] == [{"a": [1]}, None, None, None]


def test_session_larger_than_the_limit_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    rows = [("notes", {"id": "a", "text": "x" * 50}) for _ in range(3)]
    make_database(path, "CREATE TABLE notes (id TEXT, text TEXT)", rows)
    before = limits()
    with Database(path) as database:
        content = session_content(database, FORMAT, "a")
        assert content.name == "notes.db a"
        assert content.content.count(b"\n") == 3
        try:
            use_input_limits(InputLimits(import_file_bytes=200))
            with pytest.raises(LimitExceeded, match=r"notes\.db a"):
                session_content(database, FORMAT, "a")
        finally:
            use_input_limits(before)
