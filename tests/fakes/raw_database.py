"""A plain connection to a database file, for looking and tampering behind a store's back."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import apsw

from perdure.stores.sqlite.rows import Connection


@contextmanager
def raw_database(path: Path) -> Generator[Connection]:
    """The file, opened by somebody who knows nothing of stores."""
    db = cast("Connection", apsw.Connection(str(path)))
    try:
        yield db
    finally:
        db.close()
