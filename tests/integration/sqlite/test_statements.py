"""A connection of a store prepares each statement once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import apsw

import perdure
from perdure.stores.sqlite import reads
from perdure.stores.sqlite.connections import connection, locate_site
from perdure.stores.sqlite.rows import Tables


async def test_statement_with_a_join_is_prepared_once(tmp_path: Path) -> None:
    path = tmp_path / "perdure.db"
    async with perdure.open(f"sqlite:///{path}") as store:
        session = await store.create(id="a")
        await session.append(perdure.user("Hello"))

        db = connection(locate_site(path, key=None), b"")
        tables = Tables(db)
        read: list[object] = []

        def note(*asked: object) -> int:
            read.append(asked)
            return apsw.SQLITE_OK

        cast("Any", db).authorizer = note
        reads.state(tables, "default", session.id)
        assert read  # preparing a statement asks for each column
        read.clear()

        assert reads.state(tables, "default", session.id).head == 0
        assert not read
        db.close()
