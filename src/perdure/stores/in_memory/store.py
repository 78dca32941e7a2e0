"""The store in this process's memory: for tests, for drafts, and for use without a file.

A `Memory` holds the data. A `MemoryStore` is a handle on one namespace of a memory, and several
handles can share a memory. Closing a handle does not delete the data, but the data is lost when the
process ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Unpack

import msgspec

from perdure.errors import (
    ConfigError,
    ContentNotFound,
    CorruptLog,
    EntryNotFound,
    Erased,
    LeaseLost,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId, blob_hash, seqs_between
from perdure.session.info import (
    OpenTurn,
    SessionInfo,
    SessionScope,
    Sought,
    newest_found,
    newest_idle,
)
from perdure.session.notes import Question
from perdure.stores.access.call_lock import one_at_a_time
from perdure.stores.access.lease_term import holder_at
from perdure.stores.append_rules import is_current, with_lease
from perdure.stores.in_memory.append import append, lead
from perdure.stores.in_memory.services import (
    ADDRESS,
    Memory,
    MemoryHandle,
    MemoryMaintenance,
    MemoryRetention,
    MemorySearch,
)
from perdure.stores.in_memory.streams import (
    HeldStream,
    around_in,
    branch_in,
    entry_in,
    find_entry,
    notes_in,
    open_in,
    own_notes,
    resolve,
    tree_entry_in,
    tree_in,
    window_in,
)
from perdure.stores.marks import TRUSTED
from perdure.stores.prefixes import only_session
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Lease,
    LeaseRequest,
    StoreInfo,
    StreamState,
    Tail,
)
from perdure.stores.wakeups import Changes


@one_at_a_time
class MemoryStore:
    """The `SessionStore` of one namespace in this process's memory."""

    address = ADDRESS
    capabilities = Capabilities(erase=True, search=True, recall=True, leases_in_commits=True)
    marks = TRUSTED

    def __init__(
        self,
        namespace: str = "default",
        *,
        clock: Clock,
        random: RandomSource,
        memory: Memory | None = None,
    ) -> None:
        handle = MemoryHandle(namespace, memory or Memory(clock, random))
        self.namespace = namespace
        self.lock, self.process = handle.lock, handle.process
        self.search = MemorySearch(handle)
        self.retention = MemoryRetention(handle)
        self.maintenance = MemoryMaintenance(handle)
        self._handle = handle

    def sharing(self, namespace: str | None = None) -> MemoryStore:
        """Return another handle on the same memory, for the same namespace or another one."""
        memory = self._handle.memory
        return MemoryStore(
            self._handle.namespace if namespace is None else namespace,
            clock=memory.clock,
            random=memory.random,
            memory=memory,
        )

    async def commit(self, commit: Commit) -> CommitResult:
        heap, limits = self._handle.heap, self._handle.limits
        marked = await self.marks.mark(commit)
        committed = append(
            heap,
            marked,
            self._handle.memory.random,
            lambda entries: limits.check(heap, commit, entries),
            self._handle.memory.clock.now_ms(),
        )
        if not committed.is_replay:
            self._handle.memory.watches.wake(
                (self._handle.namespace, write.stream)
                for write, entries in zip(commit.writes, committed.entries, strict=True)
                if entries or write.create is not None
            )
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        held = self._handle.stream(stream)
        if held.state.info.status == "erased":
            raise Erased(stream)
        now = self._handle.memory.clock.now_ms()
        return lead(held, stream, LeaseRequest(owner, ttl_ms, dead_owner), now)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        held = self._held_by(lease)
        held.owner, held.until = lease.owner, self._handle.lease_end(ttl_ms)
        return msgspec.structs.replace(lease, until=held.until)

    async def release_lease(self, lease: Lease) -> None:
        held = self._handle.stream(lease.stream)
        if is_current(lease, held.state):
            held.until = 0

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        held = self._held_by(lease)
        if held.state.open_turn is not None:
            held.partial = (seq, content)

    def _held_by(self, lease: Lease) -> HeldStream:
        held = self._handle.stream(lease.stream)
        if not is_current(lease, held.state):
            raise LeaseLost(lease.stream, lease.epoch, held.state.epoch)
        return held

    async def state(self, stream: StreamId) -> StreamState:
        held = self._handle.stream(stream)
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
        rows = self._handle.stream(stream).rows
        seqs = seqs_between(len(rows), after, before)
        fitting = (rows[seq].entry for seq in seqs if kind in (None, rows[seq].entry.kind))
        return list(islice(fitting, limit))

    async def tail(self, stream: StreamId, limit: int, kinds: Sequence[str] = ()) -> Tail:
        state = await self.state(stream)
        entries = await self.entries(stream, state.head - limit)
        return state, entries, await self.notes(stream, kinds)

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        found = entry_in(self._handle.heap, self._handle.stream(stream), entry)
        if found is None:
            raise EntryNotFound(entry, stream)
        return found

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        held = self._handle.stream(stream)
        return frozenset(each for each in entries if entry_in(self._handle.heap, held, each))

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        held = self._handle.stream(stream)
        if leaf is not None:
            tree_entry_in(self._handle.heap, held, leaf)
        return branch_in(self._handle.heap, leaf, limit, kind)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        held = self._handle.stream(stream)
        if leaf is not None:
            tree_entry_in(self._handle.heap, held, leaf)
        return window_in(self._handle.heap, held, leaf, limit)

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        tree_entry_in(self._handle.heap, self._handle.stream(stream), leaf)
        return around_in(self._handle.heap, leaf, entries, reach)

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return tree_in(self._handle.heap, self._handle.stream(stream), limit)

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return notes_in(self._handle.heap, self._handle.stream(stream), kinds)

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return open_in(self._handle.stream(stream), Question.kind)

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        return self._handle.stream(stream).partial

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return resolve(self._handle.heap, self._handle.stream(stream), reference)

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return find_entry(self._handle.heap, self._handle.stream(stream), prefix)

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return dict(self._handle.stream(stream).aliases)

    async def find(self, prefix: str) -> StreamId:
        streams = self._handle.heap.streams
        if prefix in streams:
            return StreamId(prefix)
        near = sorted(id_ for id_ in streams if prefix and id_.startswith(prefix))
        return only_session(prefix, near)

    async def entries_named(self, alias: str) -> list[EntryId]:
        named = (dict(held.aliases).get(alias) for held in self._handle.heap.streams.values())
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
        infos = (held.state.info for held in self._handle.heap.streams.values())
        return newest_found(infos, scope, cwd, query, sought)[:limit]

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        infos = (held.state.info for held in self._handle.heap.streams.values())
        return newest_idle(infos, upto)

    async def open_turns(self) -> list[OpenTurn]:
        now = self._handle.memory.clock.now_ms()
        return [
            OpenTurn(held.state.info, holder_at(now, held.owner, held.until))
            for held in self._handle.heap.streams.values()
            if held.state.header.kind == "session" and held.state.open_turn is not None
        ]

    async def open_of_all(self, kind: str) -> list[Entry]:
        streams = self._handle.heap.streams.values()
        return [entry for held in streams for entry in open_in(held, kind)]

    async def notes_of_all(
        self, kinds: Sequence[str], streams: Sequence[StreamId] | None = None
    ) -> list[Entry]:
        found: list[Entry] = []
        heap, wanted = self._handle.heap.streams, set(kinds)
        for stream in heap if streams is None else heap.keys() & streams:
            if not wanted.isdisjoint(heap[stream].notes):  # few of thousands of streams have any
                found += own_notes(heap[stream], wanted)
        return found

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        first = max(after, 0)
        log = islice(enumerate(self._handle.heap.log, 1), first, None)
        found = ((n, entry) for n, entry in log if entry is not None and not entry.is_erased)
        return [Positioned(n, entry) for n, entry in islice(found, limit)]

    async def position(self) -> int:
        return len(self._handle.heap.log)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self._handle.process.check()
        self._handle.check_open()
        changes = self._handle.memory.watches.add(self._handle.namespace, stream)
        self._handle.watches.add(changes)
        changes.wake()
        return changes

    async def blob(self, digest: str) -> bytes:
        content = self._handle.heap.blobs.get(digest)
        if content is None:
            raise ContentNotFound(digest, self._handle.namespace)
        if blob_hash(content) != digest:
            raise CorruptLog(digest, EMPTY, "its content is not what its name says")
        return content

    async def info(self) -> StoreInfo:
        heap = self._handle.heap
        payload = sum(len(entry.body) for entry in heap.log if entry is not None)
        payload += sum(len(content) for content in heap.blobs.values())
        return StoreInfo(
            address=self.address,
            backend="memory",
            namespace=self._handle.namespace,
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
        self._handle.is_closed = True
        for watch in tuple(self._handle.watches):
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
    """Open a store that is private to this process; `durability` and other options are ignored.

    Raises: ConfigError if `address` is not ``memory:``.
    """
    if address != ADDRESS:
        raise ConfigError(f"a store in memory has no name: use {ADDRESS}, not {address}")
    return MemoryStore(namespace, clock=clock, random=random)
