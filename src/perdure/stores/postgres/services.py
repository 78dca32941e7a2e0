"""The handle on a namespace of a PostgreSQL store, and the services that share it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from perdure.errors import SessionNotFound, StoreFull, StoreReadOnly
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.session.search.query import sought_in
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.maintenance.salvage import SalvagedNamespace
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState, StreamSegment
from perdure.stores.maintenance.stats import StoreFigures
from perdure.stores.postgres import verify
from perdure.stores.postgres.append import Appender
from perdure.stores.postgres.database import Database
from perdure.stores.postgres.maintenance import salvage, segments, stats
from perdure.stores.postgres.notifications import Watcher
from perdure.stores.postgres.retention import content_gc, quotas
from perdure.stores.postgres.retention import erase as erasure
from perdure.stores.postgres.retention import policy as retention_policy
from perdure.stores.postgres.rows import is_text
from perdure.stores.postgres.search import service as search_service
from perdure.stores.protocol import (
    OnProgress,
    Verification,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.search.corpus import WordClass
from perdure.stores.search.recall_plan import Ranking, RecallCache, Recalled


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


class PostgresSearch:
    """`SearchService`: an index that is updated in steps before each search."""

    def __init__(self, handle: PostgresHandle) -> None:
        self._handle = handle
        self._cache = RecallCache()
        self._recalling = asyncio.Lock()

    async def recall(self, words: Sequence[WordClass], ranking: Ranking) -> list[Recalled]:
        with suppress(StoreReadOnly, StoreFull):
            await self.index()
        async with self._recalling:
            return await search_service.recalled(self._handle.db, self._cache, words, ranking)

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        sought = sought_in(query.text)
        # If the database is read-only or full, the search reads unindexed entries itself.
        with suppress(StoreReadOnly, StoreFull):
            await self.index()
        return await search_service.hits(self._handle.db, query, sought)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        await search_service.index(self._handle.db, on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return await search_service.reindex(self._handle.db, on_progress)


class PostgresRetention:
    """`RetentionService`: each call is one transaction."""

    def __init__(self, handle: PostgresHandle) -> None:
        self._handle = handle

    async def erase(self, request: EraseRequest) -> Certificate:
        if request.scope == "session" and not is_text(request.name or ""):
            raise SessionNotFound(request.name or "")
        certificate = await erasure.erase(
            self._handle.db,
            self._handle.namespace,
            request,
            self._handle.appender,
            self._handle.random,
        )
        self._handle.watcher.tell([StreamId(each.session) for each in certificate.sessions])
        return certificate

    async def erasures(self) -> list[Certificate]:
        return await erasure.certificates(self._handle.db)

    async def remember_backup(self, backup: Backup) -> None:
        await erasure.remember_backup(self._handle.db, backup)

    async def backups(self) -> list[Backup]:
        return await erasure.backups(self._handle.db)

    async def policy(self) -> Retention:
        return await retention_policy.policy(self._handle.db)

    async def set_policy(self, policy: Retention) -> None:
        await retention_policy.set_policy(self._handle.db, policy)

    async def is_due(self, policy: Retention) -> bool:
        return await retention_policy.is_due(self._handle.db, policy, self._handle.now())

    async def holdings(self) -> list[Holding]:
        return await retention_policy.holdings(self._handle.db, self._handle.now())

    async def holder(self, stream: StreamId) -> Hold | None:
        return await retention_policy.holder(self._handle.db, stream, self._handle.now())

    async def remove(self, stream: StreamId, *, is_erased: bool = False) -> bool:
        self._handle.appender.forget(stream)
        now = self._handle.now()
        is_gone = await retention_policy.remove(self._handle.db, stream, now, is_erased=is_erased)
        self._handle.watcher.tell([stream])
        return is_gone

    async def forget_keys(self, before: int) -> int:
        return await retention_policy.forget_keys(self._handle.db, before)

    async def give_back(self) -> int:
        return await retention_policy.give_back(self._handle.db)

    async def quota(self) -> tuple[Quota, Usage]:
        return await quotas.quota(self._handle.db)

    async def set_quota(self, quota: Quota) -> None:
        await quotas.set_quota(self._handle.db, quota)


class PostgresMaintenance:
    """`MaintenanceService`: each call but `vacuum` is one transaction."""

    def __init__(self, handle: PostgresHandle) -> None:
        self._handle = handle

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        self._handle.db.check_usable()
        return await asyncio.to_thread(verify.verification, self._handle.db, on_progress)

    async def vacuum(self) -> VacuumReport:
        blobs, blob_bytes = await content_gc.remove_unreferenced(self._handle.db)
        keys = await retention_policy.forget_old_keys(self._handle.db, self._handle.now())
        return VacuumReport(
            blobs, blob_bytes, await retention_policy.give_back(self._handle.db), keys
        )

    async def segment_states(self) -> list[SegmentState]:
        return await segments.segment_states(self._handle.db)

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        return await segments.read_segment(
            self._handle.db, stream, after=after, upto=upto, limit=limit
        )

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        await segments.receive(self._handle.db, self._handle.appender, sealed, contents)
        self._handle.watcher.tell([sealed.header.id])

    async def salvage_namespace(self) -> SalvagedNamespace:
        self._handle.db.check_usable()
        return await asyncio.to_thread(salvage.salvage_namespace, self._handle.db)

    async def measure(self, since: int) -> StoreFigures:
        return await stats.measure(self._handle.db, since)
