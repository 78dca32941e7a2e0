"""`JsonlStore`: a folder of session files of Operator or pi, with the guarantees of a log.

perdure can read and continue sessions of pi or Operator. The program whose format the folder has
can continue sessions of perdure. ``docs/jsonl.md`` describes how files provide the guarantees, and
at what cost. All disk access runs on one thread of the handle. Other handles, other processes, and
pi or Operator can use the same folder at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Literal, Unpack

from perdure.codecs.operator.codec import OPERATOR
from perdure.codecs.pi.codec import PI
from perdure.codecs.protocol import Codec
from perdure.errors import (
    ContentNotFound,
    LeaseHeld,
    SessionNotFound,
    Unsupported,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import (
    OpenTurn,
    SessionInfo,
    SessionScope,
    Sought,
    newest_found,
    newest_idle,
)
from perdure.session.memory.open_entries import OPEN_KINDS, unclosed
from perdure.session.notes import Question
from perdure.stores.access.lease_term import holder_at, is_running, lease_end
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import running_loop
from perdure.stores.append_rules import as_of, check_commit, wants_leases, with_lease
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.contents import content_named, entries_of
from perdure.stores.jsonl.disk import sidefiles
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.lines import BACKEND, FORMAT
from perdure.stores.jsonl.retention.content_gc import sizes_of
from perdure.stores.jsonl.services import JsonlHandle, JsonlMaintenance, JsonlRetention
from perdure.stores.jsonl.session_index import state_at
from perdure.stores.marks import TRUSTED
from perdure.stores.prefixes import only_session
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    StoreInfo,
    StreamState,
    Tail,
)
from perdure.stores.wakeups import Changes

DialectName = Literal["operator", "pi"]

CODECS: dict[str, Codec] = {"operator": OPERATOR, "pi": PI}


class JsonlStore:
    """The `SessionStore` of a namespace of sessions in a folder."""

    capabilities = Capabilities(
        multi_stream_commit=False, pointer_fork=False, search=True, recall=True
    )
    marks = TRUSTED

    def __init__(self, handle: JsonlHandle) -> None:
        self.address = handle.address
        self.namespace = handle.namespace
        self.durability = handle.durability
        self.search = handle.searches
        self.retention = JsonlRetention(handle)
        self.maintenance = JsonlMaintenance(handle)
        self._handle = handle

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
        """Open the sessions in the folder `root`; create the folder if it is missing.

        Durable: at durability "full", a commit survives power loss once the call returns; at
        "normal", it survives the end of the process.
        Raises: StoreReadOnly, StoreFull, StoreUnavailable.
        """
        handle = JsonlHandle(
            root,
            codec=CODECS[dialect],
            namespace=namespace,
            durability=durability,
            clock=clock,
            random=random,
            lock_timeout_s=lock_timeout_s,
        )
        await asyncio.to_thread(handle.folder.make)
        handle.thread.begin()
        if await asyncio.to_thread(handle.eraser.has_open):
            await handle.run(lambda: handle.eraser.go_on(clock.now_ms()))
        return cls(handle)

    async def commit(self, commit: Commit) -> CommitResult:
        check_commit(commit)
        if len(commit.writes) > 1:
            raise Unsupported("multi_stream_commit", BACKEND)
        if wants_leases(commit):
            raise Unsupported("leases_in_commits", BACKEND)
        committed = await self._handle.run(
            lambda: self._handle.appender.append(self.marks.with_marks(commit))
        )
        if not committed.is_replay:
            self._handle.watcher.wake(
                (self._handle.namespace, write.stream) for write in commit.writes
            )
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        def work() -> Lease:
            self._handle.standing(stream)
            with self._handle.folder.hold_lock("stream", stream):
                held = sidefiles.lease_of(self._handle.folder, stream)
                now = self._handle.clock.now_ms()
                if is_running(held.until, now) and held.owner != dead_owner:
                    raise LeaseHeld(stream, held.owner, held.until)
                taken = sidefiles.HeldLease(owner, held.epoch + 1, lease_end(now, ttl_ms))
                sidefiles.put_lease(self._handle.folder, stream, taken)
            return Lease(stream, owner, taken.epoch, taken.until)

        return await self._handle.run(work)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        def work() -> Lease:
            self._handle.standing(lease.stream)
            return sidefiles.renew(
                self._handle.folder, lease, lease_end(self._handle.clock.now_ms(), ttl_ms)
            )

        return await self._handle.run(work)

    async def release_lease(self, lease: Lease) -> None:
        def work() -> None:
            self._handle.standing(lease.stream)
            sidefiles.release(self._handle.folder, lease)

        await self._handle.run(work)

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        def work() -> None:
            self._handle.standing(lease.stream)
            with self._handle.folder.hold_lock("stream", lease.stream):
                sidefiles.check_lease(self._handle.folder, lease)
                turn = self._handle.standing(lease.stream).open_turn
                if turn is not None:
                    sidefiles.put_partial(self._handle.folder, lease.stream, turn, seq, content)

        await self._handle.run(work)

    async def session_at(self, path: Path) -> StreamId | None:
        """Return the session whose file is `path`; None if it is no session file of the folder."""
        return await self._handle.run(lambda: self._handle.shelf.session_at(path))

    async def state(self, stream: StreamId) -> StreamState:
        return await self._handle.run(lambda: _state(self._handle, stream))

    async def entries(
        self,
        stream: StreamId,
        after: int = EMPTY,
        limit: int | None = None,
        *,
        kind: str | None = None,
        before: int | None = None,
    ) -> list[Entry]:
        return await self._handle.read(
            stream, lambda log: reads.entries(log, after, limit, kind=kind, before=before)
        )

    async def tail(self, stream: StreamId, limit: int, kinds: Sequence[str] = ()) -> Tail:
        def work() -> Tail:
            state, log = _state(self._handle, stream), self._handle.shelf.require_log(stream)
            newest = reads.entries(log, state.head - limit, None, kind=None, before=None)
            return as_of(state, newest, reads.notes(log, kinds) if kinds else [])

        return await self._handle.run(work)

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        return await self._handle.read(stream, lambda log: reads.entry(log, entry))

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        return await self._handle.read(stream, lambda log: reads.visible_ids(log, entries))

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        def work() -> list[Entry]:
            tail = None if leaf is None or not limit else self._handle.shelf.tail(stream)
            if tail is not None and leaf is not None and limit is not None:
                recent = reads.recent(tail, leaf, limit, kind)
                if recent is not None:
                    return recent
            log = self._handle.shelf.require_log(stream)
            return reads.branch(log, leaf, limit=limit, kind=kind)

        return await self._handle.run(work)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        return await self._handle.read(stream, lambda log: reads.window(log, leaf, limit))

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        return await self._handle.read(stream, lambda log: reads.around(log, leaf, entries, reach))

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return await self._handle.read(stream, lambda log: reads.tree(log, limit))

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return await self._handle.read(stream, lambda log: reads.notes(log, kinds))

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return await self._handle.read(
            stream, lambda log: unclosed(reads.notes(log, OPEN_KINDS), Question.kind)
        )

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        def work() -> tuple[int, bytes] | None:
            turn = self._handle.standing(stream).open_turn
            return sidefiles.partial_of(self._handle.folder, stream, turn)

        return await self._handle.run(work)

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return await self._handle.read(stream, lambda log: reads.resolve(log, reference))

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return await self._handle.read(stream, lambda log: reads.find_entry(log, prefix))

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return await self._handle.read(stream, lambda log: dict(log.aliases))

    async def find(self, prefix: str) -> StreamId:
        def work() -> StreamId:
            if prefix and self._handle.shelf.path(StreamId(prefix)) is not None:
                return StreamId(prefix)
            ids = (standing.header.id for _, standing in self._handle.shelf.standings())
            near = sorted({id_ for id_ in ids if prefix and id_.startswith(prefix)})
            return only_session(prefix, near)

        return await self._handle.run(work)

    async def entries_named(self, alias: str) -> list[EntryId]:
        return await self._handle.run(lambda: reads.entries_named(self._logs(), alias))

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        return await self._handle.run(
            lambda: newest_found(self._infos(), scope, cwd, query, sought)[:limit]
        )

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        return await self._handle.run(lambda: newest_idle(self._infos(), upto))

    def _infos(self) -> Iterable[SessionInfo]:
        return {s.header.id: s.info for _, s in self._handle.shelf.standings()}.values()

    async def open_turns(self) -> list[OpenTurn]:
        def work() -> list[OpenTurn]:
            now, found = self._handle.clock.now_ms(), list[OpenTurn]()
            for info in self._infos():
                if info.kind == "session" and info.open_turn is not None:
                    held = sidefiles.lease_of(self._handle.folder, info.id)
                    found.append(OpenTurn(info, holder_at(now, held.owner, held.until)))
            return found

        return await self._handle.run(work)

    async def open_of_all(self, kind: str) -> list[Entry]:
        return unclosed(await self.notes_of_all(OPEN_KINDS), kind)

    async def notes_of_all(
        self, kinds: Sequence[str], streams: Sequence[StreamId] | None = None
    ) -> list[Entry]:
        return await self._handle.run(lambda: reads.notes_of_all(self._logs(streams), kinds))

    def _logs(self, among: Sequence[StreamId] | None = None) -> Iterator[Log]:
        ids = dict.fromkeys(standing.header.id for _, standing in self._handle.shelf.standings())
        chosen = ids if among is None else ids.keys() & among
        return filter(None, map(self._handle.shelf.log, chosen))

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        def work() -> list[Positioned]:
            self._handle.catch_up()
            found: list[Positioned] = []
            for span in islice(self._handle.feed.after(max(after, 0)), max(limit, 0)):
                log = self._handle.shelf.log(span.stream)
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

        return await self._handle.run(work)

    async def position(self) -> int:
        def work() -> int:
            self._handle.catch_up()
            return self._handle.feed.position

        return await self._handle.run(work)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self._handle.thread.check_usable()
        return self._handle.watcher.watch(self._handle.namespace, stream)

    async def blob(self, digest: str) -> bytes:
        content = await self._handle.run(lambda: content_named(self._handle.shelf, digest))
        if content is None:
            raise ContentNotFound(digest, self._handle.namespace)
        return content

    async def info(self) -> StoreInfo:
        return await self._handle.run(lambda: _info(self._handle))

    async def close(self) -> None:
        running_loop()
        if self._handle.thread.end():
            self._handle.watcher.end()
            await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._handle.watcher.close()
        self._handle.thread.join()
        self._handle.index.file.close()


def _state(handle: JsonlHandle, stream: StreamId) -> StreamState:
    standing = handle.standing(stream)
    held = sidefiles.lease_of(handle.folder, stream)
    return with_lease(state_at(standing, held.epoch), held.owner, held.until)


def _info(handle: JsonlHandle) -> StoreInfo:
    """Implement ``SessionStore.info``. The call blocks."""
    used = handle.limits.usage()
    blob_bytes = sum(sizes_of(sidefiles.blobs_in(handle.folder)).values())
    file_bytes = sum(stamp.size for _, stamp in handle.folder.files())
    return StoreInfo(
        address=handle.address,
        backend=BACKEND,
        namespace=handle.namespace,
        durability=handle.durability,
        schema_version=FORMAT,
        streams=sum(1 for _ in handle.shelf.standings()),  # with the facts, which are no session
        entries=used.entries,
        size_bytes=file_bytes + blob_bytes + handle.index.file.size_bytes(),
        payload_bytes=used.bytes,
        is_encrypted=False,
        engine=f"JSON lines as {handle.codec.name} writes them",
    )
