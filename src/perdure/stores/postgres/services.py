"""The handle on a namespace of a PostgreSQL store, and the services that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from types import CoroutineType
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar
from weakref import WeakKeyDictionary

from perdure.errors import SessionNotFound, StoreFull, StoreReadOnly
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.session.search.query import sought_in
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.maintenance.repair import SalvagedNamespace
from perdure.stores.maintenance.segments import StreamSegment
from perdure.stores.postgres.append import Appender
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.maintenance import salvage, segments, stats, verify
from perdure.stores.postgres.notifications import Watcher
from perdure.stores.postgres.replica import Replica
from perdure.stores.postgres.retention import content_gc, quotas
from perdure.stores.postgres.retention import erase as erasure
from perdure.stores.postgres.retention import policy as retention_policy
from perdure.stores.postgres.rows import is_text
from perdure.stores.postgres.search import search_index
from perdure.stores.protocol import (
    OnProgress,
    Verification,
)
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.search.recall_plan import Asked, RecallCache, Recalled

P = ParamSpec("P")
T = TypeVar("T")


class PostgresHandle:
    """The handle on a namespace of a database.

    Leases use `clock` if it is given, and otherwise the server's clock.
    """

    def __init__(
        self,
        database: Database,
        replica: Replica,
        namespace: str,
        clock: Clock | None,
        random: RandomSource,
    ) -> None:
        self.namespace = namespace
        self.db = database
        self.replica = replica
        self.clock = clock
        self.random = random
        self.appender = Appender(database)
        self.watcher = Watcher(database, random)

    def now(self) -> int | None:
        """Return the time of `clock`; None for the server's time. Units: Unix milliseconds."""
        return None if self.clock is None else self.clock.now_ms()


class Served(Protocol):
    """An object with a handle: the store and its services."""

    @property
    def handle(self) -> PostgresHandle: ...


def asking(
    ask: Callable[Concatenate[Database, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], CoroutineType[Any, Any, T]]:
    """Return a method that calls `ask` with the database of the object's handle."""

    async def method(self: Served, *args: P.args, **kwargs: P.kwargs) -> T:
        return await ask(self.handle.db, *args, **kwargs)

    return method  # pyrefly: ignore[bad-return] # every `async def` returns one


def asking_replica(
    ask: Callable[Concatenate[Database, P], Awaitable[T]],
) -> Callable[Concatenate[Any, P], CoroutineType[Any, Any, T]]:
    """Return a method that calls `ask` on the handle's replica, or on the primary if necessary."""

    async def method(self: Served, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.handle.replica.read(lambda db: ask(db, *args, **kwargs))

    return method  # pyrefly: ignore[bad-return] # every `async def` returns one


class PostgresSearch:
    """`SearchService` with an index that is updated in steps before each search."""

    def __init__(self, handle: PostgresHandle) -> None:
        self.handle = handle
        self._caches: WeakKeyDictionary[Database, RecallCache] = WeakKeyDictionary()
        self._recalling = asyncio.Lock()

    async def recall(self, asked: Asked) -> list[Recalled]:
        with suppress(StoreReadOnly, StoreFull):
            await search_index.index(self.handle.db)
        async with self._recalling:
            return await self.handle.replica.read(lambda db: self._recalled(db, asked))

    async def _recalled(self, db: Database, asked: Asked) -> list[Recalled]:
        cache = self._caches.setdefault(db, RecallCache())  # the index of a replica may be older
        return await search_index.recalled(db, cache, asked)

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        sought = sought_in(query.text)
        # If the database is read-only or full, the search reads unindexed entries itself.
        with suppress(StoreReadOnly, StoreFull):
            await search_index.index(self.handle.db)
        return await self.handle.replica.read(lambda db: search_index.hits(db, query, sought))

    unembedded = asking(search_index.unembedded)
    add_vectors = asking(search_index.add_vectors)
    vector_models = asking(search_index.vector_models)
    drop_vectors = asking(search_index.drop_vectors)
    index = asking(search_index.index)
    reindex = asking(search_index.reindex)


class PostgresRetention:
    """`RetentionService`: each call is one transaction."""

    def __init__(self, handle: PostgresHandle) -> None:
        self.handle = handle

    async def erase(self, request: EraseRequest) -> Certificate:
        if request.scope == "session" and not is_text(request.name or ""):
            raise SessionNotFound(request.name or "")
        certificate = await erasure.erase(
            self.handle.db,
            self.handle.namespace,
            request,
            self.handle.appender,
            self.handle.random,
        )
        self.handle.watcher.tell([StreamId(each.session) for each in certificate.sessions])
        return certificate

    erasures = asking(erasure.certificates)
    remember_backup = asking(erasure.remember_backup)
    backups = asking(erasure.backups)
    policy = asking(retention_policy.policy)
    set_policy = asking(retention_policy.set_policy)

    async def is_due(self, policy: Retention) -> bool:
        return await retention_policy.is_due(self.handle.db, policy, self.handle.now())

    async def holdings(self) -> list[Holding]:
        return await retention_policy.holdings(self.handle.db, self.handle.now())

    async def holder(self, stream: StreamId) -> Hold | None:
        return await retention_policy.holder(self.handle.db, stream, self.handle.now())

    async def remove(
        self, stream: StreamId, *, is_erased: bool = False, expected_head: int | None = None
    ) -> bool:
        self.handle.appender.forget(stream)
        is_gone = await retention_policy.remove(
            self.handle.db,
            stream,
            self.handle.now(),
            is_erased=is_erased,
            expected_head=expected_head,
        )
        self.handle.watcher.tell([stream])
        return is_gone

    forget_keys = asking(retention_policy.forget_keys)
    give_back = asking(retention_policy.give_back)
    quota = asking(quotas.quota)
    set_quota = asking(quotas.set_quota)


class PostgresMaintenance:
    """`MaintenanceService`: each call except `vacuum` is one transaction."""

    def __init__(self, handle: PostgresHandle) -> None:
        self.handle = handle

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        self.handle.db.check_usable()
        return await asyncio.to_thread(verify.verification, self.handle.db, on_progress)

    check_writable = asking(retention_policy.rewrite_policy)

    async def vacuum(self) -> VacuumReport:
        blobs, blob_bytes = await content_gc.remove_unreferenced(self.handle.db)
        keys = await retention_policy.forget_old_keys(self.handle.db, self.handle.now())
        return VacuumReport(
            blobs, blob_bytes, await retention_policy.give_back(self.handle.db), keys
        )

    segment_states = asking(segments.segment_states)
    read_segment = asking(segments.read_segment)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        await segments.receive(self.handle.db, self.handle.appender, sealed, contents)
        self.handle.watcher.tell([sealed.header.id])

    async def salvage_namespace(self) -> SalvagedNamespace:
        self.handle.db.check_usable()
        return await asyncio.to_thread(salvage.salvage_namespace, self.handle.db)

    measure = asking(stats.measure)
