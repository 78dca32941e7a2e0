"""Migrate the schema with numbered SQL files; one transaction runs a file and stores its number.

A released file is never edited; a change is a new file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perdure.stores.access.sqlite_connection import Connection, transaction

APPLICATION_ID = 0x50524455
"""``PRAGMA application_id`` of every perdure store: the letters PRDU."""

UNRELEASED = 11
"""The last schema before the first release; its tables are the same, so a store can be copied."""

_FOLDER = Path(__file__).parent / "migrations"


@cache
def migrations() -> dict[int, str]:
    """Return each schema version, in order, with the SQL that leads to it from the previous one."""
    files = sorted(_FOLDER.glob("*.sql"))
    return {int(file.name.partition("_")[0]): file.read_text("utf-8") for file in files}


def first_version() -> int:
    """Return the oldest schema version that this program can migrate."""
    return min(migrations())


def latest_version() -> int:
    """Return the newest schema version that this program supports."""
    return max(migrations())


def version_of(db: Connection) -> int:
    """Return the schema version of an open store; 0 if it has none."""
    return int(db.pragma("user_version"))


def migrate(db: Connection) -> None:
    """Migrate `db` to the newest schema; do nothing if another process already did.

    Durable: each step is applied completely or not at all.
    """
    for version, sql in migrations().items():
        with transaction(db):
            if version_of(db) < version:
                db.execute(sql)
                db.pragma("application_id", APPLICATION_ID)
                db.pragma("user_version", version)
