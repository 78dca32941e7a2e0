"""Rehearse the migrations that opening the store would run, and roll them back."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from perdure.stores.access.sqlite_connection import transaction
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.protocol import MigrationPlan, purpose
from perdure.stores.sqlite.connections import bare_connection, check_version, locate_site, opened
from perdure.stores.sqlite.migrate import latest_version, migrations


def rehearse_migration(path: Path, key: StoreKey | None = None) -> MigrationPlan:
    """Return the migrations that the store at `path` needs, after running them and rolling back.

    A read-only store is only inspected. The call blocks.
    Raises: the errors of ``SqliteStore.open``; StoreCorrupt if a step fails.
    """
    site = locate_site(path, key=key)
    with opened(site, lambda: bare_connection(site, os.urandom(16))) as db:
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        current = check_version(site, db)
        db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        missing = {version: sql for version, sql in migrations().items() if version > current}
        if missing and site.is_writable:
            with transaction(db, is_kept=False):
                db.execute("\n".join(missing.values()))
    steps = tuple(f"schema {version}: {purpose(sql)}" for version, sql in missing.items())
    return MigrationPlan(str(path), current, latest_version(), steps)
