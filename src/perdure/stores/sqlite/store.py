"""`SqliteStore`: a namespace of an SQLite file, the store that needs no server.

A handle has no state of its own: every read goes to the file, since other handles and processes
write to it too. Writes use the one writer of the file, reads its readers; the event loop never
waits for the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from perdure.errors import PerdureError
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import EntryId, StreamId
from perdure.session.info import OpenTurn, SessionInfo, SessionScope, Sought
from perdure.session.notes import Question, SessionEnded
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import running_loop
from perdure.stores.append_rules import check_commit
from perdure.stores.chain import fingerprint
from perdure.stores.key import StoreKey
from perdure.stores.marks import TRUSTED
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    LeaseRequest,
    StoreInfo,
    StreamState,
)
from perdure.stores.sqlite import append, reads
from perdure.stores.sqlite.database import attach, detach
from perdure.stores.sqlite.log import lists
from perdure.stores.sqlite.log.open_turns import open_turns
from perdure.stores.sqlite.payload.contents import PackedContent, pack_contents
from perdure.stores.sqlite.payload.requests import Request, shares_of
from perdure.stores.sqlite.rows import Tables
from perdure.stores.sqlite.services import (
    SqliteHandle,
    SqliteMaintenance,
    SqliteRetention,
    SqliteSearch,
)
from perdure.stores.wakeups import Changes

if TYPE_CHECKING:
    from perdure.stores.sqlite.retention import erase as erasure
else:
    erasure = Later("perdure.stores.sqlite.retention.erase")

AT_ONCE_BYTES = 2**17
"""Commits larger than this are prepared on a thread; smaller ones cost less than the thread."""


class SqliteStore:
    """A namespace of an SQLite file: a `SessionStore`."""

    capabilities = Capabilities(
        encryption=True, erase=True, search=True, recall=True, leases_in_commits=True
    )
    marks = TRUSTED

    def __init__(self, handle: SqliteHandle) -> None:
        self.address = handle.address
        self.namespace = handle.namespace
        self.durability = handle.durability
        self.search = SqliteSearch(handle)
        self.retention = SqliteRetention(handle)
        self.maintenance = SqliteMaintenance(handle)
        self._handle = handle

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
                return cls(SqliteHandle(database, namespace, durability, clock, random))

    async def commit(self, commit: Commit) -> CommitResult:
        check_commit(commit)
        commit = await self.marks.mark(commit)
        writes, blobs = commit.writes, list[PackedContent]()
        if commit.blobs:
            blobs = await asyncio.to_thread(pack_contents, commit.blobs)
        if sum([len(new.body) for write in writes for new in write.entries]) > AT_ONCE_BYTES:
            shares = await asyncio.to_thread(shares_of, commit, self._handle.random)
        else:
            shares = shares_of(commit, self._handle.random)
        asked = b"" if commit.idempotency_key is None else fingerprint(commit)
        now = self._handle.clock.now_ms()
        request = Request(self._handle.namespace, commit, asked, shares, blobs, now)
        is_composite = len(writes) > 1 or any(write.create for write in writes)
        return await self._handle.write(
            lambda tables: append.append(tables, request), is_composite=is_composite
        )

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        def work(tables: Tables) -> Lease:
            now = self._handle.clock.now_ms()
            wanted = LeaseRequest(owner, ttl_ms, dead_owner)
            return append.acquire_lease(tables, self._handle.namespace, stream, wanted, now)

        return await self._handle.write_passing(work)

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return await self._handle.write_passing(
            lambda tables: append.renew_lease(
                tables, self._handle.namespace, lease, self._handle.lease_end(ttl_ms)
            )
        )

    async def release_lease(self, lease: Lease) -> None:
        await self._handle.write_passing(
            lambda tables: append.release_lease(tables, self._handle.namespace, lease)
        )

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        await self._handle.write_passing(
            lambda tables: append.put_partial(tables, self._handle.namespace, lease, seq, content)
        )

    async def state(self, stream: StreamId) -> StreamState:
        return await self._handle.read(reads.state, stream)

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
            reads.entries, stream, after, limit, kind=kind, before=before
        )

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        return await self._handle.read(reads.entry, stream, entry)

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        return await self._handle.read(reads.visible_ids, stream, entries)

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        return await self._handle.read(reads.branch, stream, leaf, limit=limit, kind=kind)

    async def newest(
        self, stream: StreamId, *, limit: int | None = None, kind: str | None = None
    ) -> tuple[StreamState, list[Entry]]:
        return await self._handle.read(reads.newest, stream, limit=limit, kind=kind)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        return await self._handle.read(reads.context_window, stream, leaf, limit)

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        return await self._handle.read(reads.around, stream, leaf, entries, reach=reach)

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return await self._handle.read(reads.tree, stream, limit)

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return await self._handle.read(reads.notes, stream, kinds)

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return await self._handle.read(reads.open_questions, stream)

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        return await self._handle.read(reads.partial, stream)

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return await self._handle.read(reads.resolve, stream, reference)

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return await self._handle.read(reads.find_entry, stream, prefix)

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return await self._handle.read(reads.aliases, stream)

    async def find(self, prefix: str) -> StreamId:
        return await self._handle.read(reads.find, prefix)

    async def entries_named(self, alias: str) -> list[EntryId]:
        return await self._handle.read(reads.entries_named, alias)

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        return await self._handle.read(
            lists.sessions,
            limit=limit,
            scope=scope,
            cwd=cwd,
            query=query,
            sought=sought,
        )

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        return await self._handle.read(reads.idle_sessions, upto)

    async def open_turns(self) -> list[OpenTurn]:
        return await self._handle.read(open_turns, self._handle.clock.now_ms())

    async def open_questions_of_all(self) -> list[Entry]:
        return await self._handle.read(reads.open_of_all, Question.kind)

    async def open_ends(self) -> list[Entry]:
        return await self._handle.read(reads.open_of_all, SessionEnded.kind)

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        return await self._handle.read(reads.notes_of_all, kinds)

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        return await self._handle.read(reads.feed, after, limit)

    async def position(self) -> int:
        return await self._handle.read(reads.position)

    def changes(self, stream: StreamId | None = None) -> Changes:
        changes = self._handle.database().watch(self._handle.namespace, stream)
        self._handle.watches.add(changes)
        return changes

    async def blob(self, digest: str) -> bytes:
        return await self._handle.read(reads.blob, digest)

    async def info(self) -> StoreInfo:
        key = self._handle.opened.site.key
        return await self._handle.read(reads.info, self.address, self.durability, key)

    async def close(self) -> None:
        running_loop()
        if not self._handle.is_closed:
            self._handle.is_closed = True
            for changes in tuple(self._handle.watches):
                changes.end()
            await asyncio.to_thread(detach, self._handle.opened)
