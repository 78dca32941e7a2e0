"""`PostgresStore`: a namespace of a PostgreSQL database, the store that hosts share.

A handle keeps no state that another process could invalidate unnoticed: the server checks its
cached streams inside the commit that relies on them (``append``). ``docs/guides/postgres.md``
describes the roles and the tasks of an administrator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Unpack

from perdure.errors import ConfigError, Unsupported
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry, Positioned
from perdure.session.fold import ContextWindow, Placed
from perdure.session.ids import MOST_SEQ, EntryId, StreamId, blob_hash
from perdure.session.info import OpenTurn, SessionInfo, SessionScope, Sought
from perdure.session.notes import Question, SessionEnded
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.append_rules import check_commit, wants_leases
from perdure.stores.chain import SALT_BYTES, fingerprint
from perdure.stores.marks import TRUSTED
from perdure.stores.postgres import leases, reads, usage
from perdure.stores.postgres.append import Request
from perdure.stores.postgres.database import CONNECTIONS, Database, conninfo_of
from perdure.stores.postgres.rows import is_text
from perdure.stores.postgres.services import (
    PostgresHandle,
    PostgresMaintenance,
    PostgresRetention,
    PostgresSearch,
)
from perdure.stores.protocol import (
    EMPTY,
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    StoreInfo,
    StreamState,
    durability_of,
)
from perdure.stores.wakeups import Changes


class PostgresStore:
    """A namespace of a PostgreSQL database: a `SessionStore`."""

    capabilities = Capabilities(erase=True, search=True, recall=True)
    marks = TRUSTED

    def __init__(self, handle: PostgresHandle) -> None:
        self.address = handle.db.address
        self.namespace = handle.namespace
        self.search = PostgresSearch(handle)
        self.retention = PostgresRetention(handle)
        self.maintenance = PostgresMaintenance(handle)
        self._handle = handle

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
        return cls(PostgresHandle(database, namespace, clock, random))

    async def commit(self, commit: Commit) -> CommitResult:
        self._handle.db.check_usable()
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
            salts=self._handle.random(SALT_BYTES * count) if count else b"",
            blobs=blobs,
        )
        committed = await self._handle.appender.append(request)
        self._handle.watcher.tell([write.stream for write in commit.writes])
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        wanted = (stream, owner, ttl_ms)
        lease = await leases.acquire(
            self._handle.db, wanted, now=self._handle.now(), dead_owner=dead_owner
        )
        self._handle.appender.record_lease(lease)
        return lease

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return await leases.renew(self._handle.db, lease, ttl_ms, self._handle.now())

    async def release_lease(self, lease: Lease) -> None:
        await leases.release(self._handle.db, lease)

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        await leases.put_partial(self._handle.db, lease, seq, content)

    async def state(self, stream: StreamId) -> StreamState:
        self._handle.db.check_usable()
        return await reads.state(self._handle.db, stream)

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
            self._handle.db, stream, between, limit, kind=kind, is_newest_first=before is not None
        )

    async def entry(self, stream: StreamId, entry: EntryId) -> Entry:
        return await reads.entry(self._handle.db, stream, entry)

    async def visible_ids(self, stream: StreamId, entries: Sequence[EntryId]) -> frozenset[EntryId]:
        return await reads.visible_ids(self._handle.db, stream, entries)

    async def branch(
        self,
        stream: StreamId,
        leaf: EntryId | None,
        *,
        limit: int | None = None,
        kind: str | None = None,
    ) -> list[Entry]:
        return await reads.branch(self._handle.db, stream, leaf, limit=limit, kind=kind)

    async def context_window(
        self, stream: StreamId, leaf: EntryId | None, limit: int | None = None
    ) -> ContextWindow:
        return await reads.context_window(self._handle.db, stream, leaf, limit)

    async def around(
        self, stream: StreamId, leaf: EntryId, entries: Sequence[EntryId], reach: int
    ) -> list[Placed]:
        return await reads.around(self._handle.db, stream, leaf, entries, reach)

    async def tree(self, stream: StreamId, limit: int | None = None) -> list[Entry]:
        return await reads.tree(self._handle.db, stream, limit)

    async def notes(self, stream: StreamId, kinds: Sequence[str]) -> list[Entry]:
        return await reads.notes(self._handle.db, stream, tuple(kinds))

    async def open_questions(self, stream: StreamId) -> list[Entry]:
        return await reads.open_questions(self._handle.db, stream)

    async def partial(self, stream: StreamId) -> tuple[int, bytes] | None:
        return await reads.partial(self._handle.db, stream)

    async def resolve(self, stream: StreamId, reference: str) -> EntryId:
        return await reads.resolve(self._handle.db, stream, reference)

    async def find_entry(self, stream: StreamId, prefix: str) -> EntryId:
        return await reads.find_entry(self._handle.db, stream, prefix)

    async def aliases(self, stream: StreamId) -> dict[str, EntryId]:
        return await reads.aliases(self._handle.db, stream)

    async def find(self, prefix: str) -> StreamId:
        return await reads.find(self._handle.db, prefix)

    async def entries_named(self, alias: str) -> list[EntryId]:
        return await reads.entries_named(self._handle.db, alias)

    async def sessions(
        self,
        *,
        limit: int | None = 50,
        scope: SessionScope = "listed",
        cwd: str | None = None,
        query: str | None = None,
        **sought: Unpack[Sought],
    ) -> list[SessionInfo]:
        self._handle.db.check_usable()
        return await reads.sessions(
            self._handle.db,
            limit=limit,
            scope=scope,
            cwd=cwd,
            query=query,
            sought=sought,
        )

    async def idle_sessions(self, upto: int) -> list[StreamId]:
        return await reads.idle_sessions(self._handle.db, upto)

    async def open_turns(self) -> list[OpenTurn]:
        return await leases.open_turns(self._handle.db, self._handle.now())

    async def open_questions_of_all(self) -> list[Entry]:
        return await reads.open_of_all(self._handle.db, Question.kind)

    async def open_ends(self) -> list[Entry]:
        return await reads.open_of_all(self._handle.db, SessionEnded.kind)

    async def notes_of_all(self, kinds: Sequence[str]) -> list[Entry]:
        return await reads.notes_of_all(self._handle.db, tuple(kinds))

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        found, was_cut = await reads.feed(self._handle.db, after, limit)
        if was_cut:
            self._handle.watcher.wake_soon()
        return found

    async def position(self) -> int:
        return await reads.position(self._handle.db)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self._handle.db.check_usable()
        return self._handle.watcher.watch(stream)

    async def blob(self, digest: str) -> bytes:
        return await reads.blob(self._handle.db, digest, self._handle.namespace)

    async def info(self) -> StoreInfo:
        self._handle.db.check_usable()
        size, version, server = await reads.figures(self._handle.db)
        found = await usage.namespace_totals(self._handle.db)
        return StoreInfo(
            address=self.address,
            backend="postgres",
            namespace=self._handle.namespace,
            durability=self._handle.db.durability,
            schema_version=version,
            streams=found.streams,
            entries=found.entries,
            size_bytes=size,
            payload_bytes=found.body_bytes + found.content_bytes,
            is_encrypted=False,
            engine=f"PostgreSQL {server}",
        )

    async def close(self) -> None:
        if not self._handle.db.check_loop():
            return
        await self._handle.watcher.close()
        await self._handle.db.close()


def _with_digests(contents: Sequence[bytes]) -> list[tuple[str, bytes]]:
    return [(blob_hash(content), content) for content in contents]


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
