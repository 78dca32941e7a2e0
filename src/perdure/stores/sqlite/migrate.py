"""Schema versions: numbered SQL files, each applied in one transaction with its number.

A released file is never edited; a change is a new file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perdure.stores.name_parts import parts_of
from perdure.stores.sqlite.rows import INFO_COLUMNS, Connection, info_of_row

APPLICATION_ID = 0x50524455
"""``PRAGMA application_id`` of every perdure store: the letters PRDU."""

_NAMES = 11
"""The first schema with name parts."""

_AT_ONCE = 100_000
"""Number of parts that are sorted at a time."""

_ALL_SESSIONS = f"""
SELECT {INFO_COLUMNS}, s.no, s.namespace FROM stream AS s
WHERE s.kind = 'session' AND s.status <> 'erased' AND s.namespace > 0 ORDER BY s.no
"""  # noqa: S608 - put together from constants

_ADD = "INSERT OR IGNORE INTO name_part VALUES (?, ?, ?)"

_FOLDER = Path(__file__).parent / "migrations"


@cache
def migrations() -> dict[int, str]:
    """Return schema version -> the SQL that leads to it from the previous one, in order."""
    files = sorted(_FOLDER.glob("*.sql"))
    return {int(file.name.partition("_")[0]): file.read_text("utf-8") for file in files}


def latest_version() -> int:
    """Return the newest schema version this program supports."""
    return max(migrations())


def version_of(db: Connection) -> int:
    """Return the schema version of an open store; 0 if it has none."""
    return int(db.pragma("user_version"))


def migrate(db: Connection) -> None:
    """Migrate `db` to the newest schema; do nothing if another process already did.

    Durable: each step is applied completely or not at all.
    """
    for version, sql in migrations().items():
        db.execute("BEGIN IMMEDIATE")
        try:
            if version_of(db) < version:
                db.execute(sql)
                if version == _NAMES:
                    _list_all(db)
                db.pragma("application_id", APPLICATION_ID)
                db.pragma("user_version", version)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")


def _list_all(db: Connection) -> None:
    """Add the sessions of a file without name parts to the index of lists."""
    waiting: list[tuple[int, bytes, int]] = []
    for row in [*db.execute(_ALL_SESSIONS).fetchall(), None]:
        if row is not None:
            waiting += [(row[-1], part, row[-2]) for part in parts_of(info_of_row(row))]
        if row is None or len(waiting) > _AT_ONCE:
            db.cursor().executemany(_ADD, sorted(waiting))  # sorted: each page is visited once
            waiting.clear()
