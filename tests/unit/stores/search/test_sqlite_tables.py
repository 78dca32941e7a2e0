"""The tables of an index in an SQLite file."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, cast

import apsw
import pytest

from perdure.session.search.parts.builder import Text, make_part
from perdure.session.search.parts.lookup import Read
from perdure.stores.access.sqlite_connection import Connection, SqlRows
from perdure.stores.search.rows import run_now
from perdure.stores.search.sqlite_tables import TABLES, SqliteReader, SqliteWriter
from perdure.stores.sqlite.migrate import latest_version
from perdure.stores.sqlite.schema import made_by, objects_of


def test_session_file_index_has_the_search_tables_of_a_store() -> None:
    db = cast("Connection", apsw.Connection(":memory:"))
    db.execute(TABLES)
    found = objects_of(db)
    db.close()
    of_store = made_by(latest_version())
    vectors = (b"search_model", b"search_vector")  # session files have none
    of_index = {row for row in of_store if row[2].startswith(b"search_") and row[2] not in vectors}
    assert found == of_index
    assert len(found) == 8


TEXTS = 3_000
"""Number of texts of the index part that the tests read: about 15 fit into a block."""


def _connected() -> Any:
    return apsw.Connection(":memory:")


@cache
def _written() -> bytes:
    """Return a database with the index part, which takes 0.3 CPU-seconds to make."""
    with closing(_connected()) as db:
        db.execute(TABLES)
        words = [[f"w{number * each % 997}" for each in range(1, 150)] for number in range(TEXTS)]
        part = make_part([Text(number, number, said, [], 0) for number, said in enumerate(words)])
        run_now(SqliteWriter(SqlRows(db), 1).add_part(part))
        return db.serialize("main")


@contextmanager
def index_part() -> Generator[SqlRows]:
    with closing(_connected()) as db:
        db.deserialize("main", _written())
        yield SqlRows(db)


def numbers_in_blocks(rows: SqlRows, numbers: Sequence[int], stretch: bytes = b"") -> list[int]:
    blocks = run_now(SqliteReader(rows, 1).blocks([Read(1, numbers, stretch)]))
    return [each for block in blocks for each in numbers if block.first <= each < block.behind]


@pytest.mark.parametrize("step", [1, 2, 40, 41, 200, 2_999])
def test_blocks_with_near_and_far_texts_are_each_read_once(step: int) -> None:
    numbers = sorted({*range(0, TEXTS, step), *range(500, 520)})
    with index_part() as rows:
        assert numbers_in_blocks(rows, numbers) == numbers
        assert numbers_in_blocks(rows, numbers, b"\0no text\0")[0] == numbers[0]


def test_missing_blocks_are_skipped() -> None:
    numbers = [0, 1_000, 2_000, 2_001, TEXTS - 1]
    with index_part() as rows:
        rows.run("DELETE FROM search_text WHERE n > 700 AND n <= 1000")
        assert numbers_in_blocks(rows, numbers) == [0, 2_000, 2_001, TEXTS - 1]
        rows.run("DELETE FROM search_text WHERE n <= 100")
        assert numbers_in_blocks(rows, numbers) == [2_000, 2_001, TEXTS - 1]
