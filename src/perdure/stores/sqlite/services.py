"""The handle on a namespace of an SQLite store, and the services that share it."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from perdure.errors import StoreFull, StoreReadOnly, StoreUnavailable, Unsupported
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.lease_term import lease_end
from perdure.stores.maintenance.protocol import SOME_COMMITS, VacuumReport
from perdure.stores.protocol import (
    Durability,
    OnProgress,
    Verification,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import KEY_WINDOW_MS, Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.sqlite.database import Database
from perdure.stores.sqlite.payload.contents import pack_contents
from perdure.stores.sqlite.rows import Tables
from perdure.stores.wakeups import Changes

if TYPE_CHECKING:
    from perdure.session.search import query as wording
    from perdure.stores.maintenance.repair import SalvagedNamespace
    from perdure.stores.maintenance.segments import SegmentState, StreamSegment
    from perdure.stores.maintenance.stats import StoreFigures
    from perdure.stores.search import recall_plan
    from perdure.stores.search.recall_plan import Asked, RecallCache, Recalled
    from perdure.stores.search.vectors import Unembedded, VectorModel, VectorState
    from perdure.stores.sqlite import verify
    from perdure.stores.sqlite.maintenance import content_gc, segments, stats
    from perdure.stores.sqlite.retention import erase as erasure
    from perdure.stores.sqlite.retention import erase_plan, erase_records, quotas
    from perdure.stores.sqlite.retention import policy as retention_policy
    from perdure.stores.sqlite.search import search_index
else:
    recall_plan = Later("perdure.stores.search.recall_plan")
    wording = Later("perdure.session.search.query")
    verify = Later("perdure.stores.sqlite.verify")
    quotas = Later("perdure.stores.sqlite.retention.quotas")
    erase_records = Later("perdure.stores.sqlite.retention.erase_records")
    retention_policy = Later("perdure.stores.sqlite.retention.policy")
    erasure = Later("perdure.stores.sqlite.retention.erase")
    erase_plan = Later("perdure.stores.sqlite.retention.erase_plan")
    search_index = Later("perdure.stores.sqlite.search.search_index")
    content_gc = Later("perdure.stores.sqlite.maintenance.content_gc")
    stats = Later("perdure.stores.sqlite.maintenance.stats")
    segments = Later("perdure.stores.sqlite.maintenance.segments")


SCHEME = "sqlite:///"

P = ParamSpec("P")
T = TypeVar("T")


class SqliteHandle:
    """A handle on a namespace of a database, usable until it is closed.

    The services of a store share one handle.
    """

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
            raise StoreUnavailable(self.address, "it was closed; open it again")
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

    async def write(
        self, work: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` in a transaction on the writer's thread, at the store's durability."""
        database, namespace = self.database(), self.namespace
        return await database.write(
            lambda tables: work(tables, namespace, *args, **kwargs), self.durability
        )

    async def write_whole(
        self, work: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` with `write`. If `work` raises an error, roll back the changes of `work`."""
        database, namespace = self.database(), self.namespace
        return await database.write(
            lambda tables: work(tables, namespace, *args, **kwargs),
            self.durability,
            is_composite=True,
        )

    def lease_end(self, ttl_ms: int) -> int:
        """Return the end of a lease that starts now and lasts `ttl_ms`.

        Units: Unix milliseconds.
        """
        return lease_end(self.clock.now_ms(), ttl_ms)

    async def write_passing(
        self, work: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `work` in a transaction that survives a killed process, but not always a power cut.

        Losing a lease in a power cut does no harm, because the power cut also ends the owner of the
        lease. A power cut cannot lose a lease and keep data that was written under it, because the
        lease comes first in the write-ahead log.
        """
        database, namespace = self.database(), self.namespace
        return await database.write(
            lambda tables: work(tables, namespace, *args, **kwargs), "normal"
        )


class SqliteSearch:
    """`SearchService` with an index that is updated in steps before each search."""

    def __init__(self, handle: SqliteHandle) -> None:
        self._handle = handle
        self._cache: RecallCache | None = None

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        sought = wording.sought_in(query.text)
        # If the file is read-only or full, the search reads unindexed entries itself.
        with suppress(StoreReadOnly, StoreFull):
            await self.index()
        return await self._handle.read(search_index.hits, query, sought)

    async def recall(self, asked: Asked) -> list[Recalled]:
        with suppress(StoreReadOnly, StoreFull):
            await self.index()
        if self._cache is None:
            self._cache = recall_plan.RecallCache()
        return await self._handle.read(search_index.recalled, self._cache, asked)

    async def unembedded(self, model: VectorModel) -> Unembedded:
        return await self._handle.read(search_index.unembedded, model)

    async def add_vectors(
        self, model: VectorModel, span: tuple[int, int], vectors: Mapping[int, bytes]
    ) -> bool:
        database, name = self._handle.database(), self._handle.namespace
        return await search_index.add_vectors(database, name, model, span, vectors)

    async def vector_models(self) -> dict[VectorModel, VectorState]:
        return await self._handle.read(search_index.vector_models)

    async def drop_vectors(self, model: VectorModel) -> None:
        database, name = self._handle.database(), self._handle.namespace
        await search_index.drop_vectors(database, name, model)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        await search_index.index(self._handle.database(), self._handle.namespace, on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return await search_index.reindex(
            self._handle.database(), self._handle.namespace, on_progress
        )


class SqliteRetention:
    """`RetentionService` that works in steps, so that other processes can write between them."""

    def __init__(self, handle: SqliteHandle) -> None:
        self._handle = handle

    async def erase(self, request: EraseRequest) -> Certificate:
        database, name = self._handle.database(), self._handle.namespace
        begun = await self._handle.write_whole(erase_plan.begin, request, self._handle.random)
        await erasure.go_on(database, self._handle.durability, self._handle.clock)
        return await erasure.certificate_after(database, name, request, begun)

    async def erasures(self) -> list[Certificate]:
        return await self._handle.read(erase_records.certificates_of)

    async def remember_backup(self, backup: Backup) -> None:
        await self._handle.write(lambda tables, _: erase_records.remember_backup(tables, backup))

    async def backups(self) -> list[Backup]:
        return await self._handle.read(lambda tables, _: erase_records.backups_of(tables))

    async def policy(self) -> Retention:
        return await self._handle.read(retention_policy.policy_of)

    async def set_policy(self, policy: Retention) -> None:
        await self._handle.write(retention_policy.set_policy, policy)

    async def is_due(self, policy: Retention) -> bool:
        return await self._handle.read(retention_policy.is_due, policy, self._handle.clock.now_ms())

    async def holdings(self) -> list[Holding]:
        return await self._handle.read(retention_policy.holdings, self._handle.clock.now_ms())

    async def holder(self, stream: StreamId) -> Hold | None:
        return await self._handle.read(retention_policy.holder, stream, self._handle.clock.now_ms())

    async def remove(
        self, stream: StreamId, *, is_erased: bool = False, expected_head: int | None = None
    ) -> bool:
        database, random = self._handle.database(), self._handle.random
        at, id_ = self._handle.clock.now_ms(), random(16).hex()
        request = EraseRequest(id=id_, scope="session", by="retention", at=at, name=stream)
        is_begun = await self._handle.write_whole(
            retention_policy.begin_removal,
            request,
            random,
            is_erased=is_erased,
            expected_head=expected_head,
        )
        if is_begun:
            await erasure.go_on(database, self._handle.durability, self._handle.clock)
        return is_begun

    async def forget_keys(self, before: int) -> int:
        return await self._handle.write(retention_policy.forget_keys, before)

    async def give_back(self) -> int:
        return await _give_back(self._handle)

    async def quota(self) -> tuple[Quota, Usage]:
        return await self._handle.read(quotas.quota_of)

    async def set_quota(self, quota: Quota) -> None:
        await self._handle.write_whole(quotas.set_quota, quota)


class SqliteMaintenance:
    """`MaintenanceService` whose calls are one transaction each, except `vacuum`."""

    def __init__(self, handle: SqliteHandle) -> None:
        self._handle = handle

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        return await self._handle.read(verify.verification, on_progress)

    async def check_writable(self) -> None:
        await self._handle.write(retention_policy.rewrite_policy)

    async def vacuum(self) -> VacuumReport:
        database = self._handle.database()
        found = await self._handle.read(content_gc.find_unreferenced)
        blobs = blob_bytes = 0
        for part in content_gc.in_batches(found.blobs):
            removed = await database.write(
                partial(content_gc.remove, found, part), self._handle.durability
            )
            blobs, blob_bytes = blobs + len(removed), blob_bytes + sum(removed)
        before = self._handle.clock.now_ms() - KEY_WINDOW_MS
        keys = await self._handle.write(retention_policy.forget_keys, before)
        return VacuumReport(blobs, blob_bytes, await _give_back(self._handle), keys)

    async def segment_states(self) -> list[SegmentState]:
        return await self._handle.read(segments.segment_states)

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        return await self._handle.read(
            segments.read_segment, stream, after=after, upto=upto, limit=limit
        )

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        kept = await asyncio.to_thread(pack_contents, contents)
        await self._handle.write_whole(segments.receive, sealed, kept)

    async def measure(self, since: int) -> StoreFigures:
        path = self._handle.database().path
        return await self._handle.read(
            lambda tables, _: stats.measure(tables, path, since, self._handle.namespace)
        )

    async def salvage_namespace(self) -> SalvagedNamespace:
        raise Unsupported("salvage", "sqlite")  # `repair` reads the pages of the file instead


async def _give_back(handle: SqliteHandle) -> int:
    freed = 0
    while step := await handle.write(lambda tables, _: content_gc.give_back(tables)):
        freed += step
    return freed
