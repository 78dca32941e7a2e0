"""`JsonlStore`: a folder of session files as Operator or pi keep them, with a log's promises.

What the tool of the dialect wrote can be read and gone on with here, what is written here by it;
docs/jsonl.md says how the promises are kept in files, and what they cost. Everything that touches
the disk runs on one thread of the handle; other handles, other processes and the tools themselves
may use the same folder at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar, Unpack
from urllib.parse import quote

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.codecs.protocol import Codec
from perdure.errors import (
    AmbiguousId,
    EntryNotFound,
    LeaseHeld,
    SessionNotFound,
    Unsupported,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import (
    ORIGINS,
    OpenTurn,
    SessionInfo,
    SessionScope,
    Sought,
    is_found,
    is_sought,
)
from perdure.session.notes import INBOX_KINDS, unanswered_questions
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.access.lease_term import holder_at, is_running, lease_end
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import running_loop
from perdure.stores.append_rules import check_commit, wants_leases, with_lease
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.append import BACKEND, Appender
from perdure.stores.jsonl.commit_look import CommitLook
from perdure.stores.jsonl.contents import content_named, entries_of
from perdure.stores.jsonl.disk import sidefiles
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, namespace_folder
from perdure.stores.jsonl.disk.thread import FolderThread
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.maintenance import salvage, segments, stats
from perdure.stores.jsonl.retention.erase import Eraser
from perdure.stores.jsonl.retention.limits import Limits, RetentionMethods
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.positions import catch_up
from perdure.stores.jsonl.search.search import Searches
from perdure.stores.jsonl.session_index import FileState as Kept
from perdure.stores.jsonl.session_index import SessionIndex, state_at
from perdure.stores.jsonl.verify import verification
from perdure.stores.maintenance.salvage import SalvagedNamespace
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState, StreamSegment
from perdure.stores.marks import TRUSTED
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
)
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.wakeups import Changes, Look, Watcher

SCHEME = "jsonl:///"
DialectName = Literal["operator", "pi"]

CODECS: dict[str, Codec] = {"operator": OPERATOR, "pi": PI}

T = TypeVar("T")


class _Handle:
    """A namespace of a folder, until it is closed."""

    capabilities = Capabilities(multi_stream_commit=False, pointer_fork=False, search=True)
    marks = TRUSTED

    def __init__(
        self,
        root: Path,
        *,
        codec: Codec,
        namespace: str,
        durability: Durability,
        clock: Clock,
        random: RandomSource,
        lock_timeout_s: float,
    ) -> None:
        self.address = f"{SCHEME}{quote(str(root))}?dialect={codec.name}"
        self.namespace = namespace
        self.durability: Durability = durability
        self._clock, self._random = clock, random
        path, is_synced = namespace_folder(root, namespace), durability == "full"
        self._folder = Folder(path, is_synced=is_synced, lock_timeout_s=lock_timeout_s)
        self._codec = codec
        self._shelf = SessionIndex(self._folder, codec)
        self._feed = Feed(self._folder)
        self._limits = Limits(self._shelf)
        self._index = Index(self._shelf, self._feed)
        self._eraser = Eraser(self._shelf, self._feed, self._index, namespace)
        self._appender = Appender(self._shelf, self._feed, self._limits, random)
        self._thread = FolderThread(self._folder, self.address)
        self._searches = Searches(self._index, self._run)
        self._watcher = Watcher(self._looking)

    async def _run(self, work: Callable[[], T]) -> T:
        return await self._thread.run(work)

    async def _read(self, stream: StreamId, read: Callable[[Log], T]) -> T:
        return await self._run(lambda: read(self._log(stream)))

    @contextmanager
    def _looking(self) -> Generator[Look]:
        yield CommitLook(self._folder, self._feed, self._codec, self.namespace)

    # -- on the thread

    def _log(self, stream: StreamId) -> Log:
        log = self._shelf.log(stream)
        if log is None:
            raise SessionNotFound(stream)
        return log

    def _standing(self, stream: StreamId) -> Kept:
        standing = self._shelf.standing(stream)
        if standing is None:
            raise SessionNotFound(stream)
        return standing

    def _catch_up(self) -> None:
        """Give positions to what has none: what a tool wrote, or a process that died."""
        catch_up(self._shelf, self._feed)


class _WriteMethods(_Handle):
    """`LogWriter`."""

    async def commit(self, commit: Commit) -> CommitResult:
        check_commit(commit)
        if len(commit.writes) > 1:
            raise Unsupported("multi_stream_commit", BACKEND)
        if wants_leases(commit):
            raise Unsupported("leases_in_commits", BACKEND)
        committed = await self._run(lambda: self._appender.append(self.marks.with_marks(commit)))
        if not committed.is_replay:
            self._watcher.wake((self.namespace, write.stream) for write in commit.writes)
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        def work() -> Lease:
            self._standing(stream)
            with self._folder.hold_lock("stream", stream):
                held = sidefiles.lease_of(self._folder, stream)
                now = self._clock.now_ms()
                if is_running(held.until, now) and held.owner != dead_owner:
                    raise LeaseHeld(stream, held.owner, held.until)
                taken = sidefiles.HeldLease(owner, held.epoch + 1, lease_end(now, ttl_ms))
                sidefiles.put_lease(self._folder, stream, taken)
            return Lease(stream, owner, taken.epoch, taken.until)

        return await self._run(work)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        def work() -> Lease:
            self._standing(lease.stream)
            return sidefiles.renew(self._folder, lease, lease_end(self._clock.now_ms(), ttl_ms))

        return await self._run(work)

    async def release_lease(self, lease: Lease) -> None:
        def work() -> None:
            self._standing(lease.stream)
            sidefiles.release(self._folder, lease)

        await self._run(work)

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        def work() -> None:
            self._standing(lease.stream)
            with self._folder.hold_lock("stream", lease.stream):
                sidefiles.check_lease(self._folder, lease)
                turn = self._standing(lease.stream).open_turn
                if turn is not None:
                    sidefiles.put_partial(self._folder, lease.stream, turn, seq, content)

        await self._run(work)


class _ReadMethods(_Handle):
    """`LogReader`."""

    async def session_at(self, path: Path) -> StreamId | None:
        """Return the session whose file is `path`; None if it is no session file of the folder."""
        return await self._run(lambda: self._shelf.session_at(path))

    async def state(self, stream: StreamId) -> StreamState:
        def work() -> StreamState:
            standing = self._standing(stream)
            held = sidefiles.lease_of(self._folder, stream)
            return with_lease(state_at(standing, held.epoch), held.owner, held.until)

        return await self._run(work)

    async def entries(
        self,
        stream: StreamId,
        after: int = EMPTY,
        limit: int | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Entry]:
        return await self._read(
            stream, lambda log: reads.entries(log, after, limit, kind=kind, before=before)
        )

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        return await self._read(stream, lambda log: reads.entry(log, entry))

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        return await self._read(stream, lambda log: reads.visible_ids(log, entries))

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        def work() -> list[Entry]:
            tail = None if leaf is None or not limit else self._shelf.tail(stream)
            if tail is not None and leaf is not None and limit is not None:
                recent = reads.recent(tail, leaf, limit, kind)
                if recent is not None:
                    return recent
            return reads.branch(self._log(stream), leaf, limit=limit, kind=kind)

        return await self._run(work)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        return await self._read(stream, lambda log: reads.window(log, leaf, limit))

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        return await self._read(stream, lambda log: reads.around(log, leaf, entries, reach))

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return await self._read(stream, lambda log: reads.tree(log, limit))

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return await self._read(stream, lambda log: reads.notes(log, kinds))

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return await self._read(
            stream, lambda log: unanswered_questions(reads.notes(log, INBOX_KINDS))
        )

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        def work() -> tuple[int, bytes] | None:
            turn = self._standing(stream).open_turn
            return sidefiles.partial_of(self._folder, stream, turn)

        return await self._run(work)

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return await self._read(stream, lambda log: reads.resolve(log, reference))

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return await self._read(stream, lambda log: reads.find_entry(log, prefix))

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return await self._read(stream, lambda log: dict(log.aliases))


class _Namespace(_Handle):
    """`NamespaceReader`."""

    async def find(self, prefix: str) -> StreamId:
        def work() -> StreamId:
            if prefix and self._shelf.path(StreamId(prefix)) is not None:
                return StreamId(prefix)
            ids = (standing.header.id for _, standing in self._shelf.standings())
            near = sorted({id_ for id_ in ids if prefix and id_.startswith(prefix)})
            if not near:
                raise SessionNotFound(prefix)
            if len(near) > 1:
                raise AmbiguousId(prefix, tuple(near))
            return near[0]

        return await self._run(work)

    async def entries_named(self, alias: str) -> list[EntryId]:
        return await self._run(lambda: reads.entries_named(self._logs(), alias))

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        def work() -> list[SessionInfo]:
            infos = {s.header.id: s.info for _, s in self._shelf.standings()}.values()
            listed = [i for i in infos if i.kind == "session" and i.origin in ORIGINS[scope]]
            found = [
                each for each in listed if is_found(each, cwd, query) and is_sought(each, sought)
            ]
            found.sort(key=lambda info: (info.updated_at, info.id), reverse=True)
            return found[:limit]

        return await self._run(work)

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        def work() -> list[StreamId]:
            infos = {s.header.id: s.info for _, s in self._shelf.standings()}.values()
            idle = (i for i in infos if i.kind == "session" and i.status == "active")
            found = sorted((i.updated_at, i.id) for i in idle if i.updated_at <= upto)
            return [stream for _, stream in reversed(found)]

        return await self._run(work)

    async def open_turns(self) -> list[OpenTurn]:
        def work() -> list[OpenTurn]:
            now, found = self._clock.now_ms(), list[OpenTurn]()
            for info in {s.header.id: s.info for _, s in self._shelf.standings()}.values():
                if info.kind == "session" and info.open_turn is not None:
                    held = sidefiles.lease_of(self._folder, info.id)
                    found.append(OpenTurn(info, holder_at(now, held.owner, held.until)))
            return found

        return await self._run(work)

    async def open_questions_of_all(self) -> list[Entry]:
        return unanswered_questions(await self.notes_of_all(INBOX_KINDS))

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        return await self._run(lambda: reads.notes_of_all(self._logs(), kinds))

    def _logs(self) -> Iterator[Log]:
        ids = dict.fromkeys(standing.header.id for _, standing in self._shelf.standings())
        return filter(None, map(self._shelf.log, ids))

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        def work() -> list[Positioned]:
            self._catch_up()
            found: list[Positioned] = []
            for span in islice(self._feed.after(max(after, 0)), max(limit, 0)):
                log = self._shelf.log(span.stream)
                head = EMPTY if log is None else log.head
                end = min(span.first + min(span.length, limit - len(found)), head + 1)
                seqs = range(span.first, end)
                entries: list[Entry] = []
                with suppress(SessionNotFound):  # erased meanwhile
                    entries = [] if log is None else entries_of(log, seqs)
                found += [
                    Positioned(span.position + number, entry)
                    for number, entry in enumerate(entries)
                ]
                if len(found) >= limit:
                    break
            return found

        return await self._run(work)

    async def position(self) -> int:
        def work() -> int:
            self._catch_up()
            return self._feed.position

        return await self._run(work)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self._thread.check_usable()
        return self._watcher.watch(self.namespace, stream)

    async def blob(self, digest: str) -> bytes:
        content = await self._run(lambda: content_named(self._shelf, digest))
        if content is None:
            raise EntryNotFound(digest, self.namespace)
        return content


class _SearchMethods(_Handle):
    """`IndexedSearchService`, and `ScanSearchService` where no index can be made."""

    async def search(self, query: SearchQuery) -> list[Hit]:
        return await self.scan(query)

    async def scan(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        return await self._searches.search(query, on_progress)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        await self._searches.index(on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return await self._searches.reindex(on_progress)


class _SegmentMethods(_Handle):
    """`SegmentService`."""

    async def segment_states(self) -> list[SegmentState]:
        return await self._run(lambda: segments.segment_states(self._shelf, self._feed))

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        share = partial(
            segments.read_segment, self._shelf, stream, after=after, upto=upto, limit=limit
        )
        return await self._run(share)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        await self._run(lambda: segments.receive(self._shelf, self._feed, sealed, contents))
        self._watcher.wake([(self.namespace, sealed.header.id)])

    async def salvage_namespace(self) -> SalvagedNamespace:
        return await self._run(lambda: salvage.salvage_namespace(self._shelf, self._feed))


class _EraseMethods(_Handle):
    """`EraseService`: sessions are removed whole."""

    async def erase(self, request: EraseRequest) -> Certificate:
        certificate = await self._run(lambda: self._eraser.erase(request))
        self._watcher.wake(
            (self.namespace, StreamId(each.session)) for each in certificate.sessions
        )
        return certificate

    async def erasures(self) -> list[Certificate]:
        return await self._run(self._eraser.certificates)


class JsonlStore(
    _WriteMethods,
    _ReadMethods,
    _Namespace,
    _SearchMethods,
    _SegmentMethods,
    _EraseMethods,
    RetentionMethods,
):
    """A namespace of sessions in a folder: a `SessionStore` and `IndexedSearchService`."""

    @classmethod
    async def open(
        cls,
        root: Path,
        *,
        dialect: DialectName = "operator",
        namespace: str = "default",
        durability: Durability = "full",
        clock: Clock,
        random: RandomSource,
        lock_timeout_s: float = LOCK_TIMEOUT_S,
    ) -> JsonlStore:
        """A handle on the sessions in the folder `root`, made if it is missing.

        Durable: at durability "full" a commit survives power loss on return; at "normal" it
        survives the end of the process.
        Raises: StoreReadOnly, StoreFull, StoreUnavailable.
        """
        store = cls(
            root,
            codec=CODECS[dialect],
            namespace=namespace,
            durability=durability,
            clock=clock,
            random=random,
            lock_timeout_s=lock_timeout_s,
        )
        await asyncio.to_thread(store._folder.make)
        store._thread.begin()
        if await asyncio.to_thread(store._eraser.has_open):
            await store._run(lambda: store._eraser.go_on(clock.now_ms()))
        return store

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        return await self._run(
            lambda: verification(self._shelf, self._feed, self._index, on_progress)
        )

    async def info(self) -> StoreInfo:
        return await self._run(
            lambda: stats.info_of(
                self._shelf,
                self._limits,
                address=self.address,
                namespace=self.namespace,
                durability=self.durability,
            )
        )

    async def close(self) -> None:
        running_loop()
        if self._thread.end():
            self._watcher.end()
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._watcher.close()
        self._thread.join()
