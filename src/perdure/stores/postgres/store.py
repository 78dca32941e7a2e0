"""`PostgresStore`: a namespace of a PostgreSQL database, which several hosts can share.

A handle caches no state that another process could change unnoticed. If a commit relies on cached
streams, the server first compares the cached streams with its own state (``append``).
``docs/guides/postgres.md`` describes the roles and the tasks of an administrator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from perdure.errors import ConfigError
from perdure.events.bus import LiveBus
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Positioned
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import OpenTurn
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.append_rules import check_commit
from perdure.stores.chain import SALT_BYTES, fingerprint
from perdure.stores.cluster.live_relay import LiveRelay
from perdure.stores.marks import TRUSTED
from perdure.stores.postgres import branches, leases, lists, reads
from perdure.stores.postgres.address import route_of
from perdure.stores.postgres.append import Request
from perdure.stores.postgres.cluster.live import PostgresLive, sweep
from perdure.stores.postgres.cluster.queue import PostgresCluster
from perdure.stores.postgres.database import CONNECTIONS, Database
from perdure.stores.postgres.replica import Replica
from perdure.stores.postgres.retention import usage
from perdure.stores.postgres.rows import is_text
from perdure.stores.postgres.services import (
    PostgresHandle,
    PostgresMaintenance,
    PostgresRetention,
    PostgresSearch,
    asking,
    asking_replica,
)
from perdure.stores.protocol import (
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    LeaseRequest,
    StoreInfo,
    durability_of,
)
from perdure.stores.wakeups import Changes


class PostgresStore:
    """A namespace of a PostgreSQL database: a `SessionStore`."""

    capabilities = Capabilities(erase=True, search=True, recall=True, leases_in_commits=True)
    marks = TRUSTED

    def __init__(self, handle: PostgresHandle) -> None:
        self.address = handle.db.address
        self.namespace = handle.namespace
        self.search = PostgresSearch(handle)
        self.retention = PostgresRetention(handle)
        self.maintenance = PostgresMaintenance(handle)
        self.cluster = PostgresCluster(handle.db, handle.namespace)
        self.handle = handle
        self._relays: list[LiveRelay] = []

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

        With `is_copied`, the store is allowed to have the last schema before the first release; the
        caller must only read the store, in order to copy it. Leases use `clock` if given (by a
        test), otherwise the clock of the server.
        Durable: at durability "full", a commit survives power loss once the call returns. At
        "normal", a commit survives the end of this process, but a crash of the server may lose the
        newest commits, each as a whole.
        Raises: ConfigError for an invalid address or namespace. The call raises NotAStore,
        StoreTooNew, StoreTooOld, StoreReadOnly or StoreUnavailable if the database cannot be used.
        After an error, the database is unchanged.
        """
        if not is_text(namespace):
            raise ConfigError(f"{namespace!r} cannot be a namespace in PostgreSQL")
        database = Database(route_of(address), namespace, durability, lock_timeout_s)
        await database.open(max_connections, is_copied=is_copied)
        if not is_copied:
            await sweep(database)
        replica = Replica(database, max_connections)
        return cls(PostgresHandle(database, replica, namespace, clock, random))

    async def commit(self, commit: Commit) -> CommitResult:
        self.handle.db.check_usable()
        check_commit(commit)
        commit = await self.marks.mark(commit)
        blobs: list[tuple[str, bytes]] = []
        if commit.blobs:
            blobs = await asyncio.to_thread(_with_digests, commit.blobs)
        count = sum(len(write.entries) for write in commit.writes)
        request = Request(
            commit=commit,
            asked=b"" if commit.idempotency_key is None else fingerprint(commit),
            salts=self.handle.random(SALT_BYTES * count) if count else b"",
            blobs=blobs,
            now=self.handle.now(),
        )
        committed = await self.handle.appender.append(request)
        self.handle.watcher.tell([write.stream for write in commit.writes])
        return committed

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        wanted = LeaseRequest(owner, ttl_ms, dead_owner)
        lease = await leases.acquire(self.handle.db, stream, wanted, self.handle.now())
        self.handle.appender.record_lease(lease)
        return lease

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return await leases.renew(self.handle.db, lease, ttl_ms, self.handle.now())

    release_lease = asking(leases.release)
    put_partial = asking(leases.put_partial)
    state = asking(reads.state)
    entries = asking(reads.entries)
    tail = asking(reads.tail)
    entry = asking(reads.entry)
    visible_ids = asking(branches.visible_ids)
    branch = asking(branches.branch)
    context_window = asking(branches.context_window)
    around = asking(branches.around)
    tree = asking(branches.tree)
    notes = asking(branches.notes)
    open_questions = asking(reads.open_questions)
    partial = asking(reads.partial)
    resolve = asking(reads.resolve)
    find_entry = asking(reads.find_entry)
    aliases = asking(reads.aliases)
    find = asking(reads.find)
    entries_named = asking(reads.entries_named)
    sessions = asking_replica(reads.sessions)
    idle_sessions = asking(lists.idle_sessions)

    async def open_turns(self) -> list[OpenTurn]:
        return await leases.open_turns(self.handle.db, self.handle.now())

    open_of_all = asking(reads.open_of_all)
    notes_of_all = asking(branches.notes_of_all)

    async def feed(self, after: int, limit: int = 1000) -> list[Positioned]:
        found, was_cut = await reads.feed(self.handle.db, after, limit)
        if was_cut:
            self.handle.watcher.wake_soon()
        return found

    position = asking(reads.position)

    def changes(self, stream: StreamId | None = None) -> Changes:
        self.handle.db.check_usable()
        return self.handle.watcher.watch(stream)

    def share(self, bus: LiveBus) -> None:
        relay = LiveRelay(bus, PostgresLive(self.handle.db, self.handle.watcher))
        self._relays.append(relay)
        bus.relay = relay

    blob = asking(reads.blob)

    async def info(self) -> StoreInfo:
        self.handle.db.check_usable()
        size, version, server = await usage.database_figures(self.handle.db)
        found = await usage.namespace_totals(self.handle.db)
        return StoreInfo(
            address=self.address,
            backend="postgres",
            namespace=self.handle.namespace,
            durability=self.handle.db.durability,
            schema_version=version,
            streams=found.streams,
            entries=found.entries,
            size_bytes=size,
            payload_bytes=found.body_bytes + found.content_bytes,
            is_encrypted=False,
            engine=f"PostgreSQL {server}",
        )

    async def close(self) -> None:
        if not self.handle.db.check_loop():
            return
        try:
            for relay in self._relays:
                await relay.aclose()
            await self.handle.watcher.close()
        finally:
            await self.handle.replica.close()
            await self.handle.db.close()


def _with_digests(contents: Sequence[bytes]) -> list[tuple[str, bytes]]:
    return [(blob_hash(content), content) for content in contents]


async def open_postgres(
    address: str, *, durability: str, clock: Clock, **options: Any
) -> PostgresStore:
    """Open the store at an address ``postgresql://USER@HOST/DATABASE``.

    `options` are passed to `PostgresStore.open`. `clock` is ignored: leases use the clock of the
    server, because each host has its own clock.
    Raises: ConfigError for an invalid address or durability, and the errors of
    `PostgresStore.open`.
    """
    del clock
    return await PostgresStore.open(address, durability=durability_of(durability), **options)
