"""`SqliteStore`: a namespace of an SQLite file, the store that needs no server.

A handle has no state of its own: every read goes to the file, since other handles and processes
write to it too. Writes use the one writer of the file, reads its readers; the event loop never
waits for the disk.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, Unpack

from perdure.errors import PerdureError, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import OpenTurn, SessionInfo, SessionScope, Sought
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.lease_term import lease_end
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import running_loop
from perdure.stores.append_rules import check_commit
from perdure.stores.chain import fingerprint
from perdure.stores.key import StoreKey
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState, StreamSegment
from perdure.stores.maintenance.stats import StoreFigures
from perdure.stores.marks import TRUSTED
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    LeaseRequest,
    OnProgress,
    StoreInfo,
    StreamState,
    Verification,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import KEY_WINDOW_MS, Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.sqlite import append, reads
from perdure.stores.sqlite.database import Database, attach, detach
from perdure.stores.sqlite.log import lists
from perdure.stores.sqlite.log.open_turns import open_turns
from perdure.stores.sqlite.payload.contents import PackedContent, pack_contents
from perdure.stores.sqlite.payload.requests import Request, shares_of
from perdure.stores.sqlite.rows import Tables
from perdure.stores.wakeups import Changes

if TYPE_CHECKING:
    from perdure.session.search import query as wording
    from perdure.stores.sqlite import verify
    from perdure.stores.sqlite.maintenance import content_gc, segments, stats
    from perdure.stores.sqlite.retention import erase as erasure
    from perdure.stores.sqlite.retention import erase_records, quotas
    from perdure.stores.sqlite.retention import policy as retention_policy
    from perdure.stores.sqlite.search import service as search_service
else:
    wording = Later("perdure.session.search.query")
    verify = Later("perdure.stores.sqlite.verify")
    quotas = Later("perdure.stores.sqlite.retention.quotas")
    erase_records = Later("perdure.stores.sqlite.retention.erase_records")
    retention_policy = Later("perdure.stores.sqlite.retention.policy")
    erasure = Later("perdure.stores.sqlite.retention.erase")
    search_service = Later("perdure.stores.sqlite.search.service")
    content_gc = Later("perdure.stores.sqlite.maintenance.content_gc")
    stats = Later("perdure.stores.sqlite.maintenance.stats")
    segments = Later("perdure.stores.sqlite.maintenance.segments")

SCHEME = "sqlite:///"

AT_ONCE_BYTES = 2**17
"""Commits larger than this are prepared on a thread; smaller ones cost less than the thread."""

P = ParamSpec("P")
T = TypeVar("T")


class _Handle:
    """A namespace of a database, until it is closed."""

    capabilities = Capabilities(encryption=True, erase=True, search=True, leases_in_commits=True)
    marks = TRUSTED

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
        self._database = database
        self._clock = clock
        self._random = random
        self._watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._is_closed = False

    def _open_database(self) -> Database:
        self._database.process.check()
        if self._is_closed:
            raise StoreUnavailable(self.address, "it was closed")
        return self._database

    async def _read(
        self, read: Callable[Concatenate[Tables, str, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        database, namespace = self._open_database(), self.namespace
        return await database.read(
            lambda tables: read(tables, namespace, *args, **kwargs),
            is_durable=self.durability == "full",
        )

    async def _write(self, work: Callable[[Tables], T], *, is_composite: bool = False) -> T:
        database = self._open_database()
        return await database.write(work, self.durability, is_composite=is_composite)

    def _until(self, ttl_ms: int) -> int:
        return lease_end(self._clock.now_ms(), ttl_ms)


class _WriteMethods(_Handle):
    """`LogWriter`."""

    async def commit(self, commit: Commit) -> CommitResult:
        check_commit(commit)
        commit = await self.marks.mark(commit)
        writes, blobs = commit.writes, list[PackedContent]()
        if commit.blobs:
            blobs = await asyncio.to_thread(pack_contents, commit.blobs)
        if sum([len(new.body) for write in writes for new in write.entries]) > AT_ONCE_BYTES:
            shares = await asyncio.to_thread(shares_of, commit, self._random)
        else:
            shares = shares_of(commit, self._random)
        asked = b"" if commit.idempotency_key is None else fingerprint(commit)
        now = self._clock.now_ms()
        request = Request(self.namespace, commit, asked, shares, blobs, now)
        is_composite = len(writes) > 1 or any(write.create for write in writes)
        return await self._write(
            lambda tables: append.append(tables, request), is_composite=is_composite
        )

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        def work(tables: Tables) -> Lease:
            now = self._clock.now_ms()
            wanted = LeaseRequest(owner, ttl_ms, dead_owner)
            return append.acquire_lease(tables, self.namespace, stream, wanted, now)

        return await self._write_passing(work)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return await self._write_passing(
            lambda tables: append.renew_lease(tables, self.namespace, lease, self._until(ttl_ms))
        )

    async def release_lease(self, lease: Lease) -> None:
        await self._write_passing(
            lambda tables: append.release_lease(tables, self.namespace, lease)
        )

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        await self._write_passing(
            lambda tables: append.put_partial(tables, self.namespace, lease, seq, content)
        )

    async def _write_passing(self, work: Callable[[Tables], T]) -> T:
        # Always durability "normal": it survives a killed process. A power cut also kills the
        # owners of leases; a lease precedes any durable data written under it in the write-ahead
        # log.
        return await self._open_database().write(work, "normal")


class _ReadMethods(_Handle):
    """`LogReader`, `SnapshotReader`."""

    async def state(self, stream: StreamId) -> StreamState:
        return await self._read(reads.state, stream)

    async def entries(
        self,
        stream: StreamId,
        after: int = EMPTY,
        limit: int | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Entry]:
        return await self._read(reads.entries, stream, after, limit, kind=kind, before=before)

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        return await self._read(reads.entry, stream, entry)

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        return await self._read(reads.visible_ids, stream, entries)

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        return await self._read(reads.branch, stream, leaf, limit=limit, kind=kind)

    async def newest(
        self, stream: StreamId, *, limit: int | None = None, kind: str | None = None
    ) -> tuple[StreamState, list[Entry]]:
        return await self._read(reads.newest, stream, limit=limit, kind=kind)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        return await self._read(reads.context_window, stream, leaf, limit)

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        return await self._read(reads.around, stream, leaf, entries, reach=reach)

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return await self._read(reads.tree, stream, limit)

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return await self._read(reads.notes, stream, kinds)

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return await self._read(reads.open_questions, stream)

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        return await self._read(reads.partial, stream)

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return await self._read(reads.resolve, stream, reference)

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return await self._read(reads.find_entry, stream, prefix)

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return await self._read(reads.aliases, stream)


class _Namespace(_Handle):
    """`NamespaceReader`."""

    async def find(self, prefix: str) -> StreamId:
        return await self._read(reads.find, prefix)

    async def entries_named(self, alias: str) -> list[EntryId]:
        return await self._read(reads.entries_named, alias)

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        return await self._read(
            lists.sessions,
            limit=limit,
            scope=scope,
            cwd=cwd,
            query=query,
            sought=sought,
        )

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        return await self._read(reads.idle_sessions, upto)

    async def open_turns(self) -> list[OpenTurn]:
        return await self._read(open_turns, self._clock.now_ms())

    async def open_questions_of_all(self) -> list[Entry]:
        return await self._read(reads.open_questions_of_all)

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        return await self._read(reads.notes_of_all, kinds)

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        return await self._read(reads.feed, after, limit)

    async def position(self) -> int:
        return await self._read(reads.position)

    def changes(self, stream: StreamId | None = None) -> Changes:
        changes = self._open_database().watch(self.namespace, stream)
        self._watches.add(changes)
        return changes

    async def blob(self, digest: str) -> bytes:
        return await self._read(reads.blob, digest)


class _SearchMethods(_Handle):
    """`SearchService`: an index that is updated in steps before each search."""

    async def search(self, query: SearchQuery) -> list[Hit]:
        sought = wording.sought_in(query.text)
        # If the file is read-only or full, the search reads unindexed entries itself.
        with suppress(StoreReadOnly, StoreFull):
            await self.index()
        return await self._read(search_service.hits, query, sought)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        await search_service.index(self._open_database(), self.namespace, on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return await search_service.reindex(self._open_database(), self.namespace, on_progress)


class _Upkeep(_Handle):
    """`VacuumService`: in steps; others can write between them."""

    async def vacuum(self) -> VacuumReport:
        database = self._open_database()
        found = await self._read(content_gc.find_unreferenced)
        blobs = blob_bytes = 0
        for part in content_gc.in_batches(found.blobs):
            removed = await database.write(partial(content_gc.remove, found, part), self.durability)
            blobs, blob_bytes = blobs + len(removed), blob_bytes + sum(removed)
        keys = await self._write(
            lambda tables: retention_policy.forget_keys(
                tables, self.namespace, self._clock.now_ms() - KEY_WINDOW_MS
            )
        )
        freed = 0
        while step := await database.write(content_gc.give_back, self.durability):
            freed += step
        return VacuumReport(blobs, blob_bytes, freed, keys)


class _SegmentMethods(_Handle):
    """`SegmentService`, `StatsService`: each call is one transaction."""

    async def segment_states(self) -> list[SegmentState]:
        return await self._read(segments.segment_states)

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        return await self._read(segments.read_segment, stream, after=after, upto=upto, limit=limit)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        kept = await asyncio.to_thread(pack_contents, contents)
        await self._write(
            lambda tables: segments.receive(tables, self.namespace, sealed, kept), is_composite=True
        )

    async def measure(self, since: int) -> StoreFigures:
        path = self._open_database().path
        return await self._read(
            lambda tables, _: stats.measure(tables, path, since, self.namespace)
        )


class _EraseMethods(_Handle):
    """`EraseService`: in steps; others can write between them."""

    async def erase(self, request: EraseRequest) -> Certificate:
        return await erasure.erase(
            self._open_database(),
            self.namespace,
            request,
            durability=self.durability,
            clock=self._clock,
            random=self._random,
        )

    async def erasures(self) -> list[Certificate]:
        return await self._read(erase_records.certificates_of)

    async def remember_backup(self, backup: Backup) -> None:
        await self._write(lambda tables: erase_records.remember_backup(tables, backup))

    async def backups(self) -> list[Backup]:
        return await self._read(lambda tables, _: erase_records.backups_of(tables))


class _RetentionMethods(_Handle):
    """`RetentionService` and `QuotaService`: in steps; others can write between them."""

    async def retention(self) -> Retention:
        return await self._read(retention_policy.policy_of)

    async def set_retention(self, policy: Retention) -> None:
        await self._write(
            lambda tables: retention_policy.set_policy(tables, self.namespace, policy)
        )

    async def is_due(self, policy: Retention) -> bool:
        return await self._read(retention_policy.is_due, policy, self._clock.now_ms())

    async def holdings(self) -> list[Holding]:
        return await self._read(retention_policy.holdings, self._clock.now_ms())

    async def holder(self, stream: StreamId) -> Hold | None:
        return await self._read(retention_policy.holder, stream, self._clock.now_ms())

    async def remove(self, stream: StreamId, *, is_erased: bool = False) -> bool:
        at, id_ = self._clock.now_ms(), self._random(16).hex()
        request = EraseRequest(id=id_, scope="session", by="retention", at=at, name=stream)
        return await erasure.remove(
            self._open_database(),
            self.namespace,
            request,
            is_erased=is_erased,
            durability=self.durability,
            clock=self._clock,
            random=self._random,
        )

    async def forget_keys(self, before: int) -> int:
        return await self._write(
            lambda tables: retention_policy.forget_keys(tables, self.namespace, before)
        )

    async def give_back(self) -> int:
        freed = 0
        while step := await self._write(content_gc.give_back):
            freed += step
        return freed

    async def quota(self) -> tuple[Quota, Usage]:
        return await self._read(quotas.quota_of)

    async def set_quota(self, quota: Quota) -> None:
        await self._write(
            lambda tables: quotas.set_quota(tables, self.namespace, quota), is_composite=True
        )


class SqliteStore(
    _WriteMethods,
    _ReadMethods,
    _Namespace,
    _SearchMethods,
    _Upkeep,
    _SegmentMethods,
    _EraseMethods,
    _RetentionMethods,
):
    """A namespace of an SQLite file: a `SessionStore`, plus the services of its base classes."""

    @classmethod
    async def open(  # noqa: PLR0913 - each is an option of the store
        cls,
        path: Path,
        *,
        namespace: str = "default",
        durability: Durability = "full",
        clock: Clock,
        random: RandomSource,
        is_created: bool = True,
        key: StoreKey | None = None,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
        is_copied: bool = False,
    ) -> SqliteStore:
        """Open the store in the file `path`; create it if missing and `is_created`.

        With `key` the file is encrypted: a new file is created encrypted, an existing one must be.
        With `is_copied` it is only read, and may have the last unreleased schema.

        Durable: at durability "full" a commit survives power loss on return; at "normal" it
        survives the end of the process, and a power cut may remove whole newest commits.
        Raises: NotAStore, StoreCorrupt, StoreTooNew, StoreTooOld, StoreReadOnly, StoreUnavailable;
        KeyMissing, KeyWrong, StoreNotEncrypted; the file is then unchanged.
        """
        open_file = partial(
            attach,
            path,
            random,
            is_created=is_created,
            key=key,
            lock_timeout_s=lock_timeout_s,
            is_copied=is_copied,
        )
        while True:
            database = await asyncio.to_thread(open_file)
            try:
                if database.site.is_writable and await database.read(reads.has_open_erasures):
                    await erasure.go_on(database, durability, clock)
            except BaseException as error:
                # A rekey, a repair or a restore may have replaced the file before the first read.
                is_to_be_opened_again = isinstance(error, PerdureError) and database.is_replaced
                await asyncio.to_thread(detach, database)
                if not is_to_be_opened_again:
                    raise
            else:
                return cls(database, namespace, durability, clock, random)

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        return await self._read(verify.verification, on_progress)

    async def info(self) -> StoreInfo:
        key = self._database.site.key
        return await self._read(reads.info, self.address, self.durability, key)

    async def close(self) -> None:
        running_loop()
        if self._is_closed:
            return
        self._is_closed = True
        for changes in tuple(self._watches):
            changes.end()
        await asyncio.to_thread(detach, self._database)
