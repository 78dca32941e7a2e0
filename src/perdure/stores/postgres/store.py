"""`PostgresStore`: a namespace of a PostgreSQL database, the store that hosts share.

A handle keeps no state that another process could invalidate unnoticed: the server checks its
cached streams inside the commit that relies on them (``append``). ``docs/guides/postgres.md``
describes the roles and the tasks of an administrator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Unpack

from perdure.errors import ConfigError, SessionNotFound, StoreFull, StoreReadOnly, Unsupported
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, blob_hash
from perdure.session.info import OpenTurn, SessionInfo, SessionScope, Sought
from perdure.session.search.query import sought_in
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.append_rules import check_commit, wants_leases
from perdure.stores.chain import SALT_BYTES, fingerprint
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.maintenance.salvage import SalvagedNamespace
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState, StreamSegment
from perdure.stores.maintenance.stats import StoreFigures
from perdure.stores.marks import TRUSTED
from perdure.stores.postgres import leases, reads, usage, verify
from perdure.stores.postgres.append import Appender, Request
from perdure.stores.postgres.database import CONNECTIONS, Database, conninfo_of
from perdure.stores.postgres.maintenance import salvage, segments, stats
from perdure.stores.postgres.notifications import Watcher
from perdure.stores.postgres.retention import content_gc, quotas
from perdure.stores.postgres.retention import erase as erasure
from perdure.stores.postgres.retention import policy as retention_policy
from perdure.stores.postgres.rows import is_text
from perdure.stores.postgres.search import service as search_service
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    OnProgress,
    StoreInfo,
    StreamState,
    Verification,
    durability_of,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.wakeups import Changes


class _Handle:
    """A namespace of a database, until it is closed."""

    capabilities = Capabilities(erase=True, search=True)
    marks = TRUSTED

    def __init__(
        self, database: Database, namespace: str, clock: Clock | None, random: RandomSource
    ) -> None:
        self.address = database.address
        self.namespace = namespace
        self._db = database
        self._clock = clock
        self._random = random
        self._appender = Appender(database)
        self._watcher = Watcher(database, random)

    def _now(self) -> int | None:
        return None if self._clock is None else self._clock.now_ms()


class _WriteMethods(_Handle):
    """`LogWriter`."""

    async def commit(self, commit: Commit) -> CommitResult:
        self._db.check_usable()
        check_commit(commit)
        commit = await self.marks.mark(commit)
        if wants_leases(commit):
            raise Unsupported("leases_in_commits", "postgres")
        blobs: list[tuple[str, bytes]] = []
        if commit.blobs:
            blobs = await asyncio.to_thread(_with_digests, commit.blobs)
        count = sum(len(write.entries) for write in commit.writes)
        request = Request(
            commit=commit,
            asked=b"" if commit.idempotency_key is None else fingerprint(commit),
            salts=self._random(SALT_BYTES * count) if count else b"",
            blobs=blobs,
        )
        committed = await self._appender.append(request)
        self._watcher.tell([write.stream for write in commit.writes])
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        wanted = (stream, owner, ttl_ms)
        lease = await leases.acquire(self._db, wanted, now=self._now(), dead_owner=dead_owner)
        self._appender.record_lease(lease)
        return lease

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return await leases.renew(self._db, lease, ttl_ms, self._now())

    async def release_lease(self, lease: Lease) -> None:
        await leases.release(self._db, lease)

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        await leases.put_partial(self._db, lease, seq, content)


def _with_digests(contents: Sequence[bytes]) -> list[tuple[str, bytes]]:
    return [(blob_hash(content), content) for content in contents]


class _ReadMethods(_Handle):
    """`LogReader`."""

    async def state(self, stream: StreamId) -> StreamState:
        self._db.check_usable()
        return await reads.state(self._db, stream)

    async def entries(
        self,
        stream: StreamId,
        after: int = EMPTY,
        limit: int | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Entry]:
        between = (after, MOST_SEQ if before is None else before)
        return await reads.entries(
            self._db, stream, between, limit, kind=kind, is_newest_first=before is not None
        )

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        return await reads.entry(self._db, stream, entry)

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        return await reads.visible_ids(self._db, stream, entries)

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        return await reads.branch(self._db, stream, leaf, limit=limit, kind=kind)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        return await reads.context_window(self._db, stream, leaf, limit)

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        return await reads.around(self._db, stream, leaf, entries, reach)

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return await reads.tree(self._db, stream, limit)

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return await reads.notes(self._db, stream, tuple(kinds))

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return await reads.open_questions(self._db, stream)

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        return await reads.partial(self._db, stream)

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return await reads.resolve(self._db, stream, reference)

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return await reads.find_entry(self._db, stream, prefix)

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return await reads.aliases(self._db, stream)


class _Namespace(_Handle):
    """`NamespaceReader`."""

    async def find(self, prefix: str) -> StreamId:
        return await reads.find(self._db, prefix)

    async def entries_named(self, alias: str) -> list[EntryId]:
        return await reads.entries_named(self._db, alias)

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        self._db.check_usable()
        return await reads.sessions(
            self._db,
            limit=limit,
            scope=scope,
            cwd=cwd,
            query=query,
            sought=sought,
        )

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        return await reads.idle_sessions(self._db, upto)

    async def open_turns(self) -> list[OpenTurn]:
        return await leases.open_turns(self._db, self._now())

    async def open_questions_of_all(self) -> list[Entry]:
        return await reads.open_questions_of_all(self._db)

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        return await reads.notes_of_all(self._db, tuple(kinds))

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        found, was_cut = await reads.feed(self._db, after, limit)
        if was_cut:
            self._watcher.wake_soon()
        return found

    async def position(self) -> int:
        return await reads.position(self._db)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self._db.check_usable()
        return self._watcher.watch(stream)

    async def blob(self, digest: str) -> bytes:
        return await reads.blob(self._db, digest, self.namespace)


class _SegmentMethods(_Handle):
    """`SegmentService`, `SalvageService` and `StatsService`."""

    async def segment_states(self) -> list[SegmentState]:
        return await segments.segment_states(self._db)

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        return await segments.read_segment(self._db, stream, after=after, upto=upto, limit=limit)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        await segments.receive(self._db, self._appender, sealed, contents)
        self._watcher.tell([sealed.header.id])

    async def salvage_namespace(self) -> SalvagedNamespace:
        self._db.check_usable()
        return await asyncio.to_thread(salvage.salvage_namespace, self._db)

    async def measure(self, since: int) -> StoreFigures:
        return await stats.measure(self._db, since)


class _SearchMethods(_Handle):
    """`SearchService`: an index that is updated in steps before each search."""

    async def search(self, query: SearchQuery) -> list[Hit]:
        sought = sought_in(query.text)
        # If the database is read-only or full, the search reads unindexed entries itself.
        with suppress(StoreReadOnly, StoreFull):
            await self.index()
        return await search_service.hits(self._db, query, sought)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        await search_service.index(self._db, on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return await search_service.reindex(self._db, on_progress)


class _EraseMethods(_Handle):
    """`EraseService`: each erasure is one transaction."""

    async def erase(self, request: EraseRequest) -> Certificate:
        if request.scope == "session" and not is_text(request.name or ""):
            raise SessionNotFound(request.name or "")
        certificate = await erasure.erase(
            self._db, self.namespace, request, self._appender, self._random
        )
        self._watcher.tell([StreamId(each.session) for each in certificate.sessions])
        return certificate

    async def erasures(self) -> list[Certificate]:
        return await erasure.certificates(self._db)

    async def remember_backup(self, backup: Backup) -> None:
        await erasure.remember_backup(self._db, backup)

    async def backups(self) -> list[Backup]:
        return await erasure.backups(self._db)


class _RetentionMethods(_Handle):
    """Retention and quotas: each call is one transaction; `VacuumService` in several."""

    async def retention(self) -> Retention:
        return await retention_policy.policy(self._db)

    async def set_retention(self, policy: Retention) -> None:
        await retention_policy.set_policy(self._db, policy)

    async def is_due(self, policy: Retention) -> bool:
        return await retention_policy.is_due(self._db, policy, self._now())

    async def holdings(self) -> list[Holding]:
        return await retention_policy.holdings(self._db, self._now())

    async def holder(self, stream: StreamId) -> Hold | None:
        return await retention_policy.holder(self._db, stream, self._now())

    async def remove(self, stream: StreamId, *, is_erased: bool = False) -> bool:
        self._appender.forget(stream)
        now = self._now()
        is_gone = await retention_policy.remove(self._db, stream, now, is_erased=is_erased)
        self._watcher.tell([stream])
        return is_gone

    async def forget_keys(self, before: int) -> int:
        return await retention_policy.forget_keys(self._db, before)

    async def give_back(self) -> int:
        return await retention_policy.give_back(self._db)

    async def vacuum(self) -> VacuumReport:
        blobs, blob_bytes = await content_gc.remove_unreferenced(self._db)
        keys = await retention_policy.forget_old_keys(self._db, self._now())
        return VacuumReport(blobs, blob_bytes, await self.give_back(), keys)

    async def quota(self) -> tuple[Quota, Usage]:
        return await quotas.quota(self._db)

    async def set_quota(self, quota: Quota) -> None:
        await quotas.set_quota(self._db, quota)


class PostgresStore(
    _WriteMethods,
    _ReadMethods,
    _Namespace,
    _SearchMethods,
    _SegmentMethods,
    _EraseMethods,
    _RetentionMethods,
):
    """A namespace of a PostgreSQL database; a `SessionStore`, and whatever else its bases say."""

    @classmethod
    async def open(
        cls,
        address: str,
        *,
        namespace: str = "default",
        durability: Durability = "full",
        clock: Clock | None = None,
        random: RandomSource,
        max_connections: int = CONNECTIONS,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        is_copied: bool = False,
    ) -> PostgresStore:
        """Open the store in the database at `address`; create or migrate its schema.

        With `is_copied` the store may have the last unreleased schema, and must only be read.
        Leases use `clock` if given (by a test), otherwise the clock of the server.
        Durable: at durability "full" a commit survives power loss on return; at "normal" it
        survives the end of this process, and a crash of the server may take the newest
        commits whole.
        Raises: ConfigError for another address or namespace; NotAStore, StoreTooNew, StoreTooOld,
        StoreReadOnly, StoreUnavailable; the database is then unchanged.
        """
        if not is_text(namespace):
            raise ConfigError(f"{namespace!r} cannot be a namespace in PostgreSQL")
        database = Database(conninfo_of(address), namespace, durability, lock_timeout_s)
        await database.open(max_connections, is_copied=is_copied)
        return cls(database, namespace, clock, random)

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        self._db.check_usable()
        return await asyncio.to_thread(verify.verification, self._db, on_progress)

    async def info(self) -> StoreInfo:
        self._db.check_usable()
        size, version, server = await reads.figures(self._db)
        found = await usage.namespace_totals(self._db)
        return StoreInfo(
            address=self.address,
            backend="postgres",
            namespace=self.namespace,
            durability=self._db.durability,
            schema_version=version,
            streams=found.streams,
            entries=found.entries,
            size_bytes=size,
            payload_bytes=found.body_bytes + found.content_bytes,
            is_encrypted=False,
            engine=f"PostgreSQL {server}",
        )

    async def close(self) -> None:
        if not self._db.check_loop():
            return
        await self._watcher.close()
        await self._db.close()


async def open_postgres(
    address: str,
    *,
    namespace: str,
    durability: str,
    clock: Clock,
    random: RandomSource,
    lock_timeout_s: float = LOCK_TIMEOUT_S,
    is_copied: bool = False,
) -> PostgresStore:
    """Open the store at an address ``postgresql://USER@HOST/DATABASE``.

    Leases use the clock of the server, since each host has its own: `clock` is ignored.
    Raises: ConfigError for another address or durability; else as `PostgresStore.open`.
    """
    del clock
    return await PostgresStore.open(
        address,
        namespace=namespace,
        durability=durability_of(durability),
        random=random,
        lock_timeout_s=lock_timeout_s,
        is_copied=is_copied,
    )
