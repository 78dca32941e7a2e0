"""`SqliteStore`: a namespace of an SQLite file; this store needs no server.

A handle has no state of its own. Every read uses the file, because other handles and processes also
write to the file. Writes run on this process's only writer thread for the file, and reads on its
reader threads, so the event loop never waits for the disk.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.errors import PerdureError
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.session.info import OpenTurn
from perdure.stores.access.lazy_modules import Later
from perdure.stores.access.lock_holder import LOCK_TIMEOUT_S
from perdure.stores.access.process import running_loop
from perdure.stores.append_rules import check_commit
from perdure.stores.chain import fingerprint
from perdure.stores.key import StoreKey
from perdure.stores.marks import TRUSTED
from perdure.stores.protocol import (
    Capabilities,
    Commit,
    CommitResult,
    Durability,
    Lease,
    LeaseRequest,
    StoreInfo,
)
from perdure.stores.sqlite import append, reads
from perdure.stores.sqlite.database import attach, detach
from perdure.stores.sqlite.log.lists import open_turns
from perdure.stores.sqlite.payload.contents import PackedContent, pack_contents
from perdure.stores.sqlite.payload.requests import Request, shares_of
from perdure.stores.sqlite.quick_reads import FileReader
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


class SqliteStore(FileReader[SqliteHandle]):
    """The `SessionStore` of a namespace in an SQLite file."""

    capabilities = Capabilities(
        encryption=True, erase=True, search=True, recall=True, leases_in_commits=True
    )
    marks = TRUSTED

    def __init__(self, handle: SqliteHandle) -> None:
        super().__init__(handle)
        self.address = handle.address
        self.namespace = handle.namespace
        self.durability = handle.durability
        self.search = SqliteSearch(handle)
        self.retention = SqliteRetention(handle)
        self.maintenance = SqliteMaintenance(handle)

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
        """Open the store in the file `path`; create a missing store if `is_created`.

        If `key` is given, a new file is created encrypted, and an existing file must already be
        encrypted. If `is_copied` is True, the file is only read in order to copy it. A file that is
        only copied is allowed to have the last schema before the first release.

        Durable: at durability "full", a commit survives power loss once the call returns. At
        "normal", a commit survives the end of the process, but a power cut may lose the newest
        commits, each as a whole.
        Raises: KeyMissing, KeyWrong or StoreNotEncrypted if `key` does not fit the file. The call
        raises NotAStore, StoreCorrupt, StoreTooNew, StoreTooOld, StoreReadOnly or StoreUnavailable
        if the file cannot be used. After an error, the file is unchanged.
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
            shares = await asyncio.to_thread(shares_of, commit, self.handle.random)
        else:
            shares = shares_of(commit, self.handle.random)
        asked = b"" if commit.idempotency_key is None else fingerprint(commit)
        now = self.handle.clock.now_ms()
        request = Request(self.handle.namespace, commit, asked, shares, blobs, now)
        is_composite = len(writes) > 1 or any(write.create for write in writes)
        return await self.handle.database().write(
            lambda tables: append.append(tables, request),
            self.handle.durability,
            is_composite=is_composite,
        )

    async def acquire_lease(
        self, stream: StreamId, owner: str, ttl_ms: int, *, dead_owner: str | None = None
    ) -> Lease:
        wanted = LeaseRequest(owner, ttl_ms, dead_owner)
        return await self.handle.write_passing(
            lambda tables, namespace: append.acquire_lease(
                tables, namespace, stream, wanted, self.handle.clock.now_ms()
            )
        )

    async def renew_lease(self, lease: Lease, ttl_ms: int) -> Lease:
        return await self.handle.write_passing(
            lambda tables, namespace: append.renew_lease(
                tables, namespace, lease, self.handle.lease_end(ttl_ms)
            )
        )

    async def release_lease(self, lease: Lease) -> None:
        await self.handle.write_passing(append.release_lease, lease)

    async def put_partial(self, lease: Lease, seq: int, content: bytes) -> None:
        await self.handle.write_passing(append.put_partial, lease, seq, content)

    async def open_turns(self) -> list[OpenTurn]:
        return await self.handle.read(open_turns, self.handle.clock.now_ms())

    def changes(self, stream: StreamId | None = None) -> Changes:
        changes = self.handle.database().watch(self.handle.namespace, stream)
        self.handle.watches.add(changes)
        return changes

    async def info(self) -> StoreInfo:
        key = self.handle.opened.site.key
        return await self.handle.read(reads.info, self.address, self.durability, key)

    async def close(self) -> None:
        running_loop()
        if not self.handle.is_closed:
            self.handle.is_closed = True
            for changes in tuple(self.handle.watches):
                changes.end()
            await asyncio.to_thread(detach, self.handle.opened)
