"""The services of a folder of session files; each call delegates to the module that works."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from perdure.errors import (
    Unsupported,
)
from perdure.session.ids import StreamId
from perdure.session.search.values import Hit, SearchQuery
from perdure.stores.jsonl.append import BACKEND
from perdure.stores.jsonl.handle import JsonlHandle
from perdure.stores.jsonl.maintenance import salvage, segments
from perdure.stores.jsonl.retention.content_gc import remove_unreferenced
from perdure.stores.jsonl.retention.erase import backups, remember_backup
from perdure.stores.jsonl.verify import verification
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.maintenance.salvage import SalvagedNamespace
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState, StreamSegment
from perdure.stores.maintenance.stats import StoreFigures
from perdure.stores.protocol import (
    OnProgress,
    Verification,
)
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import Certificate, EraseRequest
from perdure.stores.retention.policy import KEY_WINDOW_MS, Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage


class JsonlSearch:
    """`SearchService`: by an index, or by a scan where no index can be written."""

    def __init__(self, handle: JsonlHandle) -> None:
        self._handle = handle

    async def hits(self, query: SearchQuery, on_progress: OnProgress | None = None) -> list[Hit]:
        return await self._handle.searches.search(query, on_progress)

    async def index(self, on_progress: OnProgress | None = None) -> None:
        await self._handle.searches.index(on_progress)

    async def reindex(self, on_progress: OnProgress | None = None) -> int:
        return await self._handle.searches.reindex(on_progress)


class JsonlRetention:
    """`RetentionService`: sessions are removed completely; nothing of an erased one stays."""

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

    async def remove(self, stream: StreamId, *, is_erased: bool = False) -> bool:
        if is_erased:
            return False
        now = self._handle.clock.now_ms()
        request = EraseRequest(
            id=self._handle.random(16).hex(), scope="session", by="retention", at=now, name=stream
        )
        return await self._handle.run(
            lambda: self._handle.eraser.remove(
                request, lambda: self._handle.limits.holder(stream, now) is None
            )
        )

    async def forget_keys(self, before: int) -> int:
        return await self._handle.run(lambda: self._handle.limits.forget_keys(before))

    async def give_back(self) -> int:
        """Nothing is left to give back: a file that is gone takes no space."""
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

    async def vacuum(self) -> VacuumReport:

        def work() -> VacuumReport:
            sizes = remove_unreferenced(self._handle.limits.shelf)
            keys = self._handle.limits.forget_keys(self._handle.clock.now_ms() - KEY_WINDOW_MS)
            return VacuumReport(len(sizes), sum(sizes), sum(sizes), keys)

        return await self._handle.run(work)

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
