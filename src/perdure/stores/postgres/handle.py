"""A namespace of an open PostgreSQL store: what the store and its services share."""

from __future__ import annotations

from perdure.session.clock import Clock, RandomSource
from perdure.stores.postgres.append import Appender
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.notifications import Watcher


class PostgresHandle:
    """A namespace of a database. Leases use `clock` if given, otherwise the server's clock."""

    def __init__(
        self, database: Database, namespace: str, clock: Clock | None, random: RandomSource
    ) -> None:
        self.namespace = namespace
        self.db = database
        self.clock = clock
        self.random = random
        self.appender = Appender(database)
        self.watcher = Watcher(database, random)

    def now(self) -> int | None:
        """Return the time of `clock`; None for the server's. Units: Unix milliseconds."""
        return None if self.clock is None else self.clock.now_ms()
