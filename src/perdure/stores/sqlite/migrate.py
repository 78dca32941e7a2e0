"""The schema's versions: numbered SQL files, each applied in one transaction with its number.

A file that was released is never edited; a change is a new file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perdure.stores.sqlite.rows import Connection

APPLICATION_ID = 0x50524455
"""``PRAGMA application_id`` of every perdure store: the letters PRDU."""

_FOLDER = Path(__file__).parent / "migrations"


@cache
def migrations() -> dict[int, str]:
    """Schema version -> the SQL that leads to it from the one before, in order."""
    files = sorted(_FOLDER.glob("*.sql"))
    return {int(file.name.partition("_")[0]): file.read_text("utf-8") for file in files}


def latest_version() -> int:
    """The newest schema this program knows."""
    return max(migrations())


def version_of(db: Connection) -> int:
    """The schema of an open store; 0 while it has none."""
    return int(db.pragma("user_version"))


def migrate(db: Connection) -> None:
    """Bring `db` to the newest schema; whoever comes second finds it done.

    Durable: each step is whole or did not happen.
    """
    for version, sql in migrations().items():
        db.execute("BEGIN IMMEDIATE")
        try:
            if version_of(db) < version:
                db.execute(sql)
                db.pragma("application_id", APPLICATION_ID)
                db.pragma("user_version", version)
            db.execute("COMMIT")
        finally:
            if db.in_transaction:
                db.execute("ROLLBACK")
