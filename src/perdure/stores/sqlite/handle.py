"""A namespace of an open SQLite file: what a store and its services share."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from perdure.errors import StoreUnavailable
from perdure.session.clock import Clock, RandomSource
from perdure.stores.access.lease_term import lease_end
from perdure.stores.protocol import (
    Durability,
)
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.rows import Tables
from perdure.stores.wakeups import Changes

SCHEME = "sqlite:///"

P = ParamSpec("P")
T = TypeVar("T")


class SqliteHandle:
    """A namespace of a database, until it is closed: what the store and its services share."""

    def __init__(
        self,
        database: Database,
        namespace: str,
        durability: Durability,
        clock: Clock,
        random: RandomSource,
    ) -> None:
        self.address = SCHEME + str(database.path)
        self.namespace = namespace
        self.durability: Durability = durability
        self.opened = database
        self.clock = clock
        self.random = random
        self.watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self.is_closed = False

    def database(self) -> Database:
        """Return the open database. Raises: StoreUnavailable if closed, or in a forked process."""
        self.opened.process.check()
        if self.is_closed:
            raise StoreUnavailable(self.address, "it was closed")
        return self.opened

    async def read(
        self, read: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `read` with the tables and the namespace on a reader's thread."""
        database, namespace = self.database(), self.namespace
        return await database.read(
            lambda tables: read(tables, namespace, *args, **kwargs),
            is_durable=self.durability == "full",
        )

    async def write(self, work: Callable[[Tables], T], *, is_composite: bool = False) -> T:
        """Run `work` in a transaction of the writer, at the durability of the store."""
        database = self.database()
        return await database.write(work, self.durability, is_composite=is_composite)

    def lease_end(self, ttl_ms: int) -> int:
        """Return when a lease of `ttl_ms` that starts now ends. Units: Unix milliseconds."""
        return lease_end(self.clock.now_ms(), ttl_ms)

    async def write_passing(self, work: Callable[[Tables], T]) -> T:
        """Run `work` in a transaction that survives a killed process, but maybe not a power cut.

        A power cut also kills the owners of leases; a lease precedes any durable data written under
        it in the write-ahead log.
        """
        return await self.database().write(work, "normal")
