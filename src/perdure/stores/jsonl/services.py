"""The handle on a namespace of a folder of session files, and the services that share it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from perdure.codecs.protocol import Codec
from perdure.errors import (
    SessionNotFound,
    Unsupported,
)
from perdure.session.clock import Clock, RandomSource
from perdure.session.ids import StreamId
from perdure.stores.jsonl.append import Appender
from perdure.stores.jsonl.commit_look import CommitLook
from perdure.stores.jsonl.disk.feed import Feed
from perdure.stores.jsonl.disk.folder import Folder, namespace_folder
from perdure.stores.jsonl.disk.thread import FolderThread
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.lines import BACKEND
from perdure.stores.jsonl.maintenance import salvage, segments
from perdure.stores.jsonl.retention.content_gc import remove_unreferenced
from perdure.stores.jsonl.retention.erase import Eraser, backups, remember_backup
from perdure.stores.jsonl.retention.limits import Limits
from perdure.stores.jsonl.search.indexer import Index
from perdure.stores.jsonl.search.positions import catch_up
from perdure.stores.jsonl.search.search import Searches
from perdure.stores.jsonl.session_index import FileState as Kept
from perdure.stores.jsonl.session_index import SessionIndex
from perdure.stores.jsonl.verify import verification
from perdure.stores.maintenance.protocol import SOME_COMMITS, VacuumReport
from perdure.stores.maintenance.repair import SalvagedNamespace
from perdure.stores.maintenance.segments import SegmentState, StreamSegment
from perdure.stores.maintenance.stats import StoreFigures
from perdure.stores.protocol import (
    Durability,
    OnProgress,
    Verification,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import KEY_WINDOW_MS, Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage
from perdure.stores.wakeups import Look, Watcher

SCHEME = "jsonl:///"

T = TypeVar("T")


class JsonlHandle:
    """A handle on a namespace of a folder of session files, usable until it is closed."""

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
        self.clock, self.random = clock, random
        path, is_synced = namespace_folder(root, namespace), durability == "full"
        self.folder = Folder(path, is_synced=is_synced, lock_timeout_s=lock_timeout_s)
        self.codec = codec
        self.shelf = SessionIndex(self.folder, codec)
        self.feed = Feed(self.folder)
        self.limits = Limits(self.shelf)
        self.index = Index(self.shelf, self.feed)
        self.eraser = Eraser(self.shelf, self.feed, self.index, namespace)
        self.appender = Appender(self.shelf, self.feed, self.limits, random)
        self.thread = FolderThread(self.folder, self.address)
        self.searches = Searches(self.index, self.run)
        self.watcher = Watcher(self._looking)

    async def run(self, work: Callable[[], T]) -> T:
        """Run `work` on the thread of the handle."""
        return await self.thread.run(work)

    async def read(self, stream: StreamId, read: Callable[[Log], T]) -> T:
        """Run `read` with the log of `stream` on the thread. Raises: SessionNotFound."""
        return await self.run(lambda: read(self.shelf.require_log(stream)))

    @contextmanager
    def _looking(self) -> Generator[Look]:
        yield CommitLook(self.folder, self.feed, self.codec, self.namespace)

    # -- on the thread

    def standing(self, stream: StreamId) -> Kept:
        """Return the state of the file of `stream`. Raises: SessionNotFound."""
        standing = self.shelf.standing(stream)
        if standing is None:
            raise SessionNotFound(stream)
        return standing

    def catch_up(self) -> None:
        """Assign positions to entries that another program or a killed process wrote."""
        catch_up(self.shelf, self.feed)


class JsonlRetention:
    """`RetentionService`: removes whole sessions; an erased session leaves no entries."""

    def __init__(self, handle: JsonlHandle) -> None:
        self._handle = handle

    async def erase(self, request: EraseRequest) -> Certificate:
        certificate = await self._handle.run(lambda: self._handle.eraser.erase(request))
        self._handle.watcher.wake(
            (self._handle.namespace, StreamId(each.session)) for each in certificate.sessions
        )
        return certificate

    async def erasures(self) -> list[Certificate]:
        return await self._handle.run(self._handle.eraser.certificates)

    async def policy(self) -> Retention:
        return await self._handle.run(self._handle.limits.policy)

    async def set_policy(self, policy: Retention) -> None:
        await self._handle.run(lambda: self._handle.limits.set_policy(policy))

    async def is_due(self, policy: Retention) -> bool:
        return not policy.is_empty

    async def holdings(self) -> list[Holding]:
        now = self._handle.clock.now_ms()
        return await self._handle.run(lambda: self._handle.limits.holdings(now))

    async def holder(self, stream: StreamId) -> Hold | None:
        return await self._handle.run(
            lambda: self._handle.limits.holder(stream, self._handle.clock.now_ms())
        )

    async def remove(
        self, stream: StreamId, *, is_erased: bool = False, expected_head: int | None = None
    ) -> bool:
        if is_erased:
            return False
        now, limits = self._handle.clock.now_ms(), self._handle.limits

        def is_free() -> bool:
            head = limits.shelf.require_log(stream).head
            return expected_head in (None, head) and limits.holder(stream, now) is None

        request = EraseRequest(
            id=self._handle.random(16).hex(), scope="session", by="retention", at=now, name=stream
        )
        return await self._handle.run(lambda: self._handle.eraser.remove(request, is_free))

    async def forget_keys(self, before: int) -> int:
        return await self._handle.run(lambda: self._handle.limits.forget_keys(before))

    async def give_back(self) -> int:
        """Return 0, because removing a file frees its space at once."""
        return await self._handle.run(int)

    async def remember_backup(self, backup: Backup) -> None:
        await self._handle.run(lambda: remember_backup(self._handle.limits.folder, backup))

    async def backups(self) -> list[Backup]:
        return await self._handle.run(lambda: backups(self._handle.limits.folder))

    async def quota(self) -> tuple[Quota, Usage]:
        return await self._handle.run(
            lambda: (self._handle.limits.quota(), self._handle.limits.usage())
        )

    async def set_quota(self, quota: Quota) -> None:
        await self._handle.run(lambda: self._handle.limits.set_quota(quota))


class JsonlMaintenance:
    """`MaintenanceService` of a folder of session files."""

    def __init__(self, handle: JsonlHandle) -> None:
        self._handle = handle

    async def verify(self, on_progress: OnProgress | None = None) -> Verification:
        return await self._handle.run(
            lambda: verification(
                self._handle.shelf, self._handle.feed, self._handle.index, on_progress
            )
        )

    async def check_writable(self) -> None:
        await self._handle.run(self._handle.limits.write_probe)

    async def vacuum(self) -> VacuumReport:
        limits, before = self._handle.limits, self._handle.clock.now_ms() - KEY_WINDOW_MS
        # Each has a lock of its own, and is run again if the lock is busy.
        sizes = await self._handle.run(lambda: remove_unreferenced(limits.shelf))
        keys = await self._handle.run(lambda: limits.forget_keys(before))
        return VacuumReport(len(sizes), sum(sizes), sum(sizes), keys)

    async def segment_states(self) -> list[SegmentState]:
        return await self._handle.run(
            lambda: segments.segment_states(self._handle.shelf, self._handle.feed)
        )

    async def read_segment(
        self, stream: StreamId, *, after: int, upto: int, limit: int = SOME_COMMITS
    ) -> StreamSegment:
        share = partial(
            segments.read_segment, self._handle.shelf, stream, after=after, upto=upto, limit=limit
        )
        return await self._handle.run(share)

    async def receive(self, sealed: StreamSegment, contents: Sequence[bytes]) -> None:
        await self._handle.run(
            lambda: segments.receive(self._handle.shelf, self._handle.feed, sealed, contents)
        )
        self._handle.watcher.wake([(self._handle.namespace, sealed.header.id)])

    async def salvage_namespace(self) -> SalvagedNamespace:
        return await self._handle.run(
            lambda: salvage.salvage_namespace(self._handle.shelf, self._handle.feed)
        )

    async def measure(self, since: int) -> StoreFigures:
        raise Unsupported("measure", BACKEND)  # `store stats` reads the folder
