"""The newest sessions of a plain store file, read without opening the store.

Shell completion runs at each key press, and opening a store costs three times the CPU time of this
module, for threads, an event loop and keys. This module creates no file, waits for no lock and
repairs nothing. If anything about the file is unusual, the caller must open the store instead.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import apsw

from perdure.errors import PerdureError
from perdure.session.info import SessionInfo
from perdure.stores.access.sqlite_defenses import harden
from perdure.stores.sqlite.log.lists import sessions
from perdure.stores.sqlite.migrate import APPLICATION_ID, latest_version
from perdure.stores.sqlite.rows import Connection, Tables
from perdure.stores.sqlite.schema import check_schema

_READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
_OPEN_ERASURE = "SELECT 1 FROM erasure WHERE is_done = 0 LIMIT 1"


def quick_list(
    path: Path, namespace: str, *, limit: int, query: str | None
) -> list[SessionInfo] | None:
    """Return the sessions that ``SqliteStore.sessions`` would return with the scope "all".

    Returns None if the store has to be opened to get the list: the file is missing, encrypted,
    locked, damaged or of another version, an erasure is unfinished, or there is no such namespace.
    """
    address = _read_only_address(path)
    if address is None:
        return None
    try:
        db = cast("Connection", apsw.Connection(address, flags=_READ_ONLY))
        try:
            harden(db)
            db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            return _newest(db, path, namespace, limit, query)
        finally:
            db.close()
    except (apsw.Error, PerdureError):
        return None


def _read_only_address(path: Path) -> str | None:
    """Return the URI with which SQLite only reads the file; None if there is no such URI."""
    if not path.is_file():
        return None
    file = path.resolve()  # SQLite writes the logs beside the file, not beside a link to it
    has_log, has_index, has_journal = (
        file.with_name(file.name + end).exists() for end in ("-wal", "-shm", "-journal")
    )
    if has_journal or (has_log and not has_index):
        return None  # maintenance writes the file now; or a killed process left it unfinished
    # Without a log and a journal no process writes the file: a store that is open has a log, and
    # maintenance that has the file alone writes a journal first.
    return file.as_uri() + ("?readonly_shm=1" if has_log else "?immutable=1")


def _newest(
    db: Connection, path: Path, namespace: str, limit: int, query: str | None
) -> list[SessionInfo] | None:
    if db.pragma("application_id") != APPLICATION_ID or check_schema(db, path) != latest_version():
        return None
    tables = Tables(db)
    tables.run("BEGIN")
    if tables.row("SELECT 1 FROM namespace WHERE name = ?", namespace) is None:
        return None
    if tables.row(_OPEN_ERASURE) is not None:
        return None
    return sessions(tables, namespace, limit=limit, scope="all", query=query)
