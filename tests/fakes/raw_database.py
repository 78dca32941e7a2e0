"""A plain connection to a database file, to read and change it without the store."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import apsw

from perdure.stores.access.sqlite_connection import Connection


@contextmanager
def raw_database(path: Path) -> Generator[Connection]:
    """Open the file without the store's code."""
    db = cast("Connection", apsw.Connection(str(path)))
    try:
        yield db
    finally:
        db.close()
