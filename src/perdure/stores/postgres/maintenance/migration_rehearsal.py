"""Rehearse the migrations that opening the store would run, and roll them back."""

from __future__ import annotations

import psycopg
from psycopg import AsyncConnection

from perdure.stores.maintenance.protocol import MigrationPlan
from perdure.stores.postgres.address import public_address, route_of
from perdure.stores.postgres.database import CONNECT_S
from perdure.stores.postgres.faults import meaning_of
from perdure.stores.postgres.migrate import rehearse_migration as rehearsed_in


async def rehearse_migration(address: str) -> MigrationPlan:
    """Return the migrations that the store at `address` needs, after running them and rolling back.

    Other processes that open the store meanwhile must wait.
    Raises: ConfigError; the errors of ``PostgresStore.open``; StoreCorrupt if a step fails.
    """
    conninfo = route_of(address).direct
    store = public_address(conninfo)
    try:
        async with await AsyncConnection.connect(
            conninfo, autocommit=True, connect_timeout=CONNECT_S
        ) as db:
            return await rehearsed_in(db, store)
    except psycopg.Error as error:
        raise meaning_of(error, store) from error
