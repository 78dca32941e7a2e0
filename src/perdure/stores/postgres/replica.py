"""Run lists and searches on a streaming replica; their results are as new as on the primary.

A read asks the primary for the end of the primary's log, and runs on the replica as soon as the
replica has replayed the log up to this end. So the read sees every commit, of any process, that
returned before the read began. If the replica does not catch up in time or is down, the primary
answers (``docs/decisions/0080-read-replicas.md``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import LiteralString, TypeVar

from perdure.errors import PerdureError, StoreError, StoreReadOnly, StoreUnavailable
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.postgres.address import Route
from perdure.stores.postgres.database import Database, Statement

CONNECT_S = 3
"""Longest wait for the replica's server while connecting."""

CATCH_UP_S = 0.1
"""Longest wait until the replica has replayed the log that the primary had when a read began."""

LAG_PAUSE_S = 1.0
DOWN_PAUSE_S = 30.0
"""How long the primary answers alone after the replica was behind, or could not be used."""

SYSTEM: LiteralString = "SELECT system_identifier FROM pg_control_system()"

# A commit of durability "full" is visible once it is flushed. One of "normal" is visible earlier.
_UPTO: dict[str, LiteralString] = {
    "full": """SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_flush_lsn() END::text""",
    "normal": """SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn()
        ELSE pg_current_wal_insert_lsn() END::text""",
}

_REPLAYED: LiteralString = """
SELECT pg_is_in_recovery(),
    greatest(pg_wal_lsn_diff(%s::pg_lsn, pg_last_wal_replay_lsn()), 0)::bigint
"""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class _Behind(Exception):
    """The replica lacks the newest commits."""


class _Paused(Exception):
    """The replica is not used for a while."""


class Replica:
    """The replica in the route of `primary`, connected at its first use."""

    def __init__(self, primary: Database, max_connections: int) -> None:
        self._primary = primary
        self._max_connections = max_connections
        self._db: Database | None = None
        self._opening = asyncio.Lock()
        self._closing: set[asyncio.Task[None]] = set()
        self._paused_until = 0.0
        self._is_warned = False

    async def read(self, ask: Callable[[Database], Awaitable[T]]) -> T:
        """Return the result of `ask` from the replica; if the replica fails, from the primary."""
        conninfo = self._primary.route.replica
        if conninfo is None or time.monotonic() < self._paused_until:
            return await ask(self._primary)
        (rows,) = await self._primary.ask(Statement(_UPTO[self._primary.durability]))
        try:
            db = await self._opened(conninfo)
            await _catch_up(db, str(rows[0][0]))
            self._is_warned = False
            return await ask(db)
        except _Behind as behind:
            self._pause(LAG_PAUSE_S, str(behind))
        except _Paused:
            pass
        except StoreError as error:
            self._primary.check_usable()
            self._pause(DOWN_PAUSE_S, str(error))
            self._drop()
        return await ask(self._primary)

    async def close(self) -> None:
        """Close the connections to the replica."""
        self._drop()
        await asyncio.gather(*self._closing)

    async def _opened(self, conninfo: str) -> Database:
        async with self._opening:
            if self._db is None:
                if time.monotonic() < self._paused_until:  # it failed while this read waited
                    raise _Paused
                self._db = await self._connected(conninfo)
            return self._db

    async def _connected(self, conninfo: str) -> Database:
        """Connect to the replica.

        Raises: _Behind if the replica lacks the newest commits. The call raises StoreError if the
        replica cannot be used, for example because it copies another server.
        """
        db = Database(
            Route(conninfo, conninfo),
            self._primary.namespace,
            self._primary.durability,
            LOCK_TIMEOUT_S,
            CONNECT_S,
        )
        await _open(db, self._max_connections)
        try:
            (own,) = await db.ask_once(Statement(SYSTEM))
            (primary,) = await self._primary.ask(Statement(SYSTEM))
            if own != primary:
                raise StoreUnavailable(db.address, "it is a replica of another server")
        except BaseException:
            self._close_later(db)
            raise
        return db

    def _pause(self, seconds: float, reason: str) -> None:
        """Use the primary for `seconds`; warn if the replica was in use before."""
        self._paused_until = time.monotonic() + seconds
        if not self._is_warned:
            _log.warning("lists and search read the primary, not its replica: %s", reason)
        self._is_warned = True

    def _drop(self) -> None:
        """Close the connections in the background: other reads might still wait for an answer."""
        db, self._db = self._db, None
        if db is not None:
            self._close_later(db)

    def _close_later(self, db: Database) -> None:
        task = asyncio.ensure_future(_close(db))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)


async def _open(db: Database, max_connections: int) -> None:
    """Open `db` after its server has replayed the newest schema. Raises: _Behind, StoreError."""
    until = time.monotonic() + CATCH_UP_S
    while True:
        try:
            return await db.open(max_connections)
        except StoreReadOnly:  # its schema is older, and only the primary migrates
            if time.monotonic() >= until:
                raise _Behind(f"{db.address} has not replayed the newest schema yet") from None
        await asyncio.sleep(0.005)


async def _catch_up(db: Database, upto: str) -> None:
    """Wait until the replica has replayed the log up to `upto`. Raises: _Behind."""
    until = time.monotonic() + CATCH_UP_S
    while True:
        (((is_replica, missing),),) = await db.ask_once(Statement(_REPLAYED, (upto,)))
        if not is_replica:
            raise StoreUnavailable(db.address, "it is no replica: it can be written to")
        if not missing:
            return
        if time.monotonic() >= until:
            raise _Behind(f"{db.address} is {missing} bytes of log behind")
        await asyncio.sleep(0.005)


async def _close(db: Database) -> None:
    with suppress(PerdureError):
        await db.close()
