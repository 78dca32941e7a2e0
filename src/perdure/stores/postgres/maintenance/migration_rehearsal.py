"""A rehearsal of the migrations: what opening the store would do to it, done and taken back."""

from __future__ import annotations

import psycopg
from psycopg import AsyncConnection

from perdure.stores.maintenance.protocol import MigrationPlan
from perdure.stores.postgres.database import CONNECT_S, conninfo_of, public_address
from perdure.stores.postgres.faults import meaning_of
from perdure.stores.postgres.migrate import rehearse_migration as rehearsed_in


async def rehearse_migration(address: str) -> MigrationPlan:
    """What brings the store at `address` to this program's schema.

    Whoever opens the store meanwhile waits.
    Raises: ConfigError; as ``PostgresStore.open``; StoreCorrupt when a step fails.
    """
    conninfo = conninfo_of(address)
    store = public_address(conninfo)
    try:
        async with await AsyncConnection.connect(
            conninfo, autocommit=True, connect_timeout=CONNECT_S
        ) as db:
            return await rehearsed_in(db, store)
    except psycopg.Error as error:
        raise meaning_of(error, store) from error
