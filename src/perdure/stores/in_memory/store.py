"""The store that lives in this process: for tests, for drafts, and for whoever wants no file.

A `Memory` holds the data; a `MemoryStore` is a handle on one of its namespaces, and several handles
may share a memory. Closing a handle keeps the data; nothing outlives the process.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Unpack

import msgspec

from perdure.errors import (
    AmbiguousId,
    ConfigError,
    CorruptLog,
    EntryNotFound,
    Erased,
    LeaseLost,
    SessionNotFound,
    StoreUnavailable,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId, blob_hash, seqs_between
from perdure.session.info import (
    ORIGINS,
    OpenTurn,
    SessionInfo,
    SessionScope,
    Sought,
    is_found,
    is_sought,
)
from perdure.session.kinds import OPAQUE
from perdure.session.search.query import sought_in
from perdure.session.search.values import MOST_RANKED, Hit, SearchQuery
from perdure.stores.access.call_lock import one_at_a_time
from perdure.stores.access.lease_term import holder_at, lease_end
from perdure.stores.access.process import OwnProcess
from perdure.stores.append_rules import is_current, with_lease
from perdure.stores.in_memory import limits as stream_limits
from perdure.stores.in_memory import segments
from perdure.stores.in_memory.append import append, lead
from perdure.stores.in_memory.erase import erase
from perdure.stores.in_memory.search import is_shown, is_there, texts_in
from perdure.stores.in_memory.streams import (
    Heap,
    HeldStream,
    around_in,
    branch_in,
    entry_in,
    find_entry,
    held_in,
    idle_in,
    notes_in,
    open_questions_in,
    problems_in,
    resolve,
    tree_entry_in,
    tree_in,
    window_in,
)
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState, StreamSegment
from perdure.stores.marks import TRUSTED
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Lease,
    LeaseRequest,
    OnProgress,
    StoreInfo,
    StreamState,
    Verification,
)
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.scan import fitting, hits_among
from perdure.stores.verification import (
    Steps,
    blob_problems,
    content_steps,
)
from perdure.stores.wakeups import Changes, Watches

ADDRESS = "memory:"


@dataclass(slots=True)
class Memory:
    """What handles share: by namespace a heap, limits, certificates, and what a commit wakes."""

    clock: Clock
    random: RandomSource
    lock: threading.RLock = field(default_factory=threading.RLock)
    process: OwnProcess = field(default_factory=lambda: OwnProcess(ADDRESS))
    heaps: dict[str, Heap] = field(default_factory=dict[str, Heap])
    limits: dict[str, stream_limits.Limits] = field(default_factory=dict[str, stream_limits.Limits])
    erasures: dict[str, list[Certificate]] = field(default_factory=dict[str, "list[Certificate]"])
    watches: Watches = field(default_factory=Watches)


class _Handle:
    """A namespace of a memory, until it is closed."""

    address = ADDRESS
    capabilities = Capabilities(erase=True, search=True, leases_in_commits=True)
    marks = TRUSTED

    def __init__(self, namespace: str, memory: Memory) -> None:
        self.namespace = namespace
        self.lock, self.process = memory.lock, memory.process
        self._memory = memory
        self._data = memory.heaps.setdefault(namespace, Heap())
        self._limits = memory.limits.setdefault(namespace, stream_limits.Limits())
        self._own_watches: weakref.WeakSet[Changes] = weakref.WeakSet()
        self._is_closed = False

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreUnavailable(self.address, "it was closed")

    @property
    def _heap(self) -> Heap:
        self._check_open()
        return self._data

    def _stream(self, stream: StreamId) -> HeldStream:
        return held_in(self._heap, stream)

    def _until(self, ttl_ms: int) -> int:
        return lease_end(self._memory.clock.now_ms(), ttl_ms)


class _WriteMethods(_Handle):
    """`LogWriter`."""

    async def commit(self, commit: Commit) -> CommitResult:
        heap, limits = self._heap, self._limits
        marked = await self.marks.mark(commit)
        committed = append(
            heap,
            marked,
            self._memory.random,
            lambda entries: limits.check(heap, commit, entries),
            self._memory.clock.now_ms(),
        )
        if not committed.is_replay:
            self._memory.watches.wake(
                (self.namespace, write.stream)
                for write, entries in zip(commit.writes, committed.entries, strict=True)
                if entries or write.create is not None
            )
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        held = self._stream(stream)
        if held.state.info.status == "erased":
            raise Erased(stream)
        now = self._memory.clock.now_ms()
        return lead(held, stream, LeaseRequest(owner, ttl_ms, dead_owner), now)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        held = self._held_by(lease)
        held.owner, held.until = lease.owner, self._until(ttl_ms)
        return msgspec.structs.replace(lease, until=held.until)

    async def release_lease(self, lease: Lease) -> None:
        held = self._stream(lease.stream)
        if is_current(lease, held.state):
            held.until = 0

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        held = self._held_by(lease)
        if held.state.open_turn is not None:
            held.partial = (seq, content)

    def _held_by(self, lease: Lease) -> HeldStream:
        held = self._stream(lease.stream)
        if not is_current(lease, held.state):
            raise LeaseLost(lease.stream, lease.epoch, held.state.epoch)
        return held


class _ReadMethods(_Handle):
    """`LogReader`."""

    async def state(self, stream: StreamId) -> StreamState:
        held = self._stream(stream)
        return with_lease(held.state, held.owner, held.until)

    async def entries(
        self,
        stream: StreamId,
        after: int = EMPTY,
        limit: int | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Entry]:
        rows = self._stream(stream).rows
        seqs = seqs_between(len(rows), after, before)
        fitting = (rows[seq].entry for seq in seqs if kind in (None, rows[seq].entry.kind))
        return list(islice(fitting, limit))

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        found = entry_in(self._heap, self._stream(stream), entry)
        if found is None:
            raise EntryNotFound(entry, stream)
        return found

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        held = self._stream(stream)
        return frozenset(each for each in entries if entry_in(self._heap, held, each))

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        held = self._stream(stream)
        if leaf is not None:
            tree_entry_in(self._heap, held, leaf)
        return branch_in(self._heap, leaf, limit, kind)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        held = self._stream(stream)
        if leaf is not None:
            tree_entry_in(self._heap, held, leaf)
        return window_in(self._heap, held, leaf, limit)

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        tree_entry_in(self._heap, self._stream(stream), leaf)
        return around_in(self._heap, leaf, entries, reach)

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return tree_in(self._heap, self._stream(stream), limit)

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return notes_in(self._heap, self._stream(stream), kinds)

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return open_questions_in(self._stream(stream))

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        return self._stream(stream).partial

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return resolve(self._heap, self._stream(stream), reference)

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return find_entry(self._heap, self._stream(stream), prefix)

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return dict(self._stream(stream).aliases)


class _Namespace(_Handle):
    """`NamespaceReader`."""

    async def find(self, prefix: str) -> StreamId:
        streams = self._heap.streams
        if prefix in streams:
            return StreamId(prefix)
        near = sorted(id_ for id_ in streams if prefix and id_.startswith(prefix))
        if not near:
            raise SessionNotFound(prefix)
        if len(near) > 1:
            raise AmbiguousId(prefix, tuple(near))
        return near[0]

    async def entries_named(self, alias: str) -> list[EntryId]:
        named = (dict(held.aliases).get(alias) for held in self._heap.streams.values())
        return [entry for entry in named if entry is not None]

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        infos = (held.state.info for held in self._heap.streams.values())
        listed = (i for i in infos if i.kind == "session" and i.origin in ORIGINS[scope])
        near = (info for info in listed if is_found(info, cwd, query))
        found = [info for info in near if is_sought(info, sought)]
        found.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
        return found[:limit]

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        return idle_in(self._heap, upto)

    async def open_turns(self) -> list[OpenTurn]:
        now = self._memory.clock.now_ms()
        return [
            OpenTurn(held.state.info, holder_at(now, held.owner, held.until))
            for held in self._heap.streams.values()
            if held.state.header.kind == "session" and held.state.open_turn is not None
        ]

    async def open_questions_of_all(self) -> list[Entry]:
        streams = self._heap.streams.values()
        return [entry for held in streams for entry in open_questions_in(held)]

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        found: list[Entry] = []
        for held in self._heap.streams.values():
            own = [entry for kind in set(kinds) for entry in held.notes.get(kind, ())]
            found += sorted(own, key=lambda entry: entry.seq)
        return found

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        first = max(after, 0)
        log = islice(enumerate(self._heap.log, 1), first, None)
        found = ((n, entry) for n, entry in log if entry is not None and not entry.is_erased)
        return [Positioned(n, entry) for n, entry in islice(found, limit)]

    async def position(self) -> int:
        return len(self._heap.log)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self.process.check()
        self._check_open()
        changes = self._memory.watches.add(self.namespace, stream)
        self._own_watches.add(changes)
        return changes

    async def blob(self, digest: str) -> bytes:
        content = self._heap.blobs.get(digest)
        if content is None:
            raise EntryNotFound(digest, self.namespace)
        if blob_hash(content) != digest:
            raise CorruptLog(digest, EMPTY, "its content is not what its name says")
        return content


class _SearchMethods(_Handle):
    """`SearchService`: each search reads the whole log."""

    async def search(self, query: SearchQuery) -> list[Hit]:
        heap, sought = self._heap, sought_in(query.text)
        read = islice(fitting(texts_in(heap), query, sought), MOST_RANKED)
        fits = [fit for fit in await asyncio.to_thread(list, read) if is_there(heap, fit[0])]
        shown = {found.position for found, _ in fits if is_shown(heap, found)}
        return await asyncio.to_thread(
            hits_among, fits, query, sought, lambda found: found.position in shown
        )

    async def reindex(self) -> int:
        return sum(1 for _ in texts_in(self._heap))


class _SegmentMethods(_Handle):
    """`SegmentService`."""

    async def segment_states(self) -> list[SegmentState]:
        return segments.segment_states(self._heap)

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        return segments.read_segment(self._heap, stream, after=after, upto=upto, limit=limit)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        segments.receive(self._heap, sealed, contents)
        self._limits.count(self._heap)
        self._memory.watches.wake([(self.namespace, sealed.header.id)])


class _EraseMethods(_Handle):
    """`EraseService`."""

    async def erase(self, request: EraseRequest) -> Certificate:
        earlier = self._memory.erasures.setdefault(self.namespace, [])
        certificate = erase(self._heap, self.namespace, request, earlier, self._memory.random)
        self._limits.count(self._heap)
        self._memory.watches.wake(
            (self.namespace, StreamId(each.session)) for each in certificate.sessions
        )
        return certificate

    async def erasures(self) -> list[Certificate]:
        self._check_open()
        return list(self._memory.erasures.get(self.namespace, ()))


class _RetentionMethods(_Handle):
    """`RetentionService` and `QuotaService`."""

    async def retention(self) -> Retention:
        self._check_open()
        return self._limits.policy

    async def set_retention(self, policy: Retention) -> None:
        self._check_open()
        self._limits.policy = policy

    async def is_due(self, policy: Retention) -> bool:
        self._check_open()
        return not policy.is_empty

    async def holdings(self) -> list[Holding]:
        return stream_limits.holdings(self._heap, self._memory.clock.now_ms())

    async def holder(self, stream: StreamId) -> Hold | None:
        return stream_limits.holder(self._heap, stream, self._memory.clock.now_ms())

    async def remove(self, stream: StreamId, *, is_erased: bool = False) -> bool:
        if is_erased and self._stream(stream).state.info.status != "erased":
            return False
        is_gone = stream_limits.remove(self._heap, stream, self._memory.clock.now_ms())
        self._limits.count(self._heap)
        self._memory.watches.wake([(self.namespace, stream)])
        return is_gone

    async def forget_keys(self, before: int) -> int:
        return stream_limits.forget_keys(self._heap, before)

    async def give_back(self) -> int:
        self._check_open()
        return 0

    async def quota(self) -> tuple[Quota, Usage]:
        return self._limits.quota, stream_limits.usage_of(self._heap)

    async def set_quota(self, quota: Quota) -> None:
        self._check_open()
        self._limits.quota = quota
        self._limits.count(self._heap)


@one_at_a_time
class MemoryStore(
    _WriteMethods,
    _ReadMethods,
    _Namespace,
    _SearchMethods,
    _EraseMethods,
    _SegmentMethods,
    _RetentionMethods,
):
    """A namespace of this process's memory; a `SessionStore`, and whatever else its bases say."""

    def __init__(
        self,
        namespace: str = "default",
        *,
        clock: Clock,
        random: RandomSource,
        memory: Memory | None = None,
    ) -> None:
        super().__init__(namespace, memory or Memory(clock, random))

    def sharing(self, namespace: str | None = None) -> MemoryStore:
        """Another handle on the same memory: of the same namespace, or of another."""
        memory = self._memory
        return MemoryStore(
            self.namespace if namespace is None else namespace,
            clock=memory.clock,
            random=memory.random,
            memory=memory,
        )

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        heap = self._heap
        problems = [each for held in heap.streams.values() for each in problems_in(heap, held)]
        entries = [entry for entry in heap.log if entry is not None]
        sizes = (len(content) for content in heap.blobs.values())
        steps = Steps(on_progress, len(entries) + sum(map(content_steps, sizes)))
        steps.add(len(entries))
        for digest, content in heap.blobs.items():
            problems += blob_problems(digest, content)
            steps.add(content_steps(len(content)))
        erased = sum(entry.is_erased and entry.kind != OPAQUE for entry in entries)
        steps.end()
        return Verification(len(heap.streams), len(entries), tuple(problems), erased)

    async def info(self) -> StoreInfo:
        heap = self._heap
        payload = sum(len(entry.body) for entry in heap.log if entry is not None)
        payload += sum(len(content) for content in heap.blobs.values())
        return StoreInfo(
            address=self.address,
            backend="memory",
            namespace=self.namespace,
            durability="none",
            schema_version=1,
            streams=len(heap.streams),
            entries=sum(held.state.head + 1 for held in heap.streams.values()),
            size_bytes=payload,
            payload_bytes=payload,
            is_encrypted=False,
            engine="this process",
        )

    async def close(self) -> None:
        self._is_closed = True
        for watch in tuple(self._own_watches):
            watch.end()


async def open_memory(
    address: str,
    *,
    namespace: str,
    durability: str,
    clock: Clock,
    random: RandomSource,
    **_: object,
) -> MemoryStore:
    """A store that no other process can see: durability and limits of locks have no meaning here.

    Raises: ConfigError when `address` says more than ``memory:``.
    """
    if address != ADDRESS:
        raise ConfigError(f"a store in memory has no name: use {ADDRESS}, not {address}")
    return MemoryStore(namespace, clock=clock, random=random)
