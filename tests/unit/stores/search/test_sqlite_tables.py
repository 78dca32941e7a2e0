"""The tables of an index in an SQLite file."""

from __future__ import annotations

from typing import cast

import apsw

from perdure.stores.access.sqlite_connection import Connection
from perdure.stores.search.sqlite_tables import TABLES
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
