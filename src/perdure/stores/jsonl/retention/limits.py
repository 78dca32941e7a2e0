"""Retention and quotas of a folder: small files beside the sessions, and what the sessions say.

What a namespace holds is counted from its files at every commit while there is a quota, under a
lock: what a tool wrote, or a process that was killed, counts as it stands. Without a quota a commit
looks whether there is one, and nothing else. A key stays in the file it was written to; that keys
of before a moment are forgotten is written down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from perdure.errors import QuotaExceeded, SessionNotFound
from perdure.session.clock import Clock, RandomSource
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.notes import CLOSING, Question
from perdure.stores.access.lease_term import is_running
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.disk.sidefiles import blobs_in, decoded_side, lease_of
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.retention.content_gc import remove_unreferenced, sizes_of
from perdure.stores.jsonl.retention.erase import Eraser, backups, remember_backup
from perdure.stores.jsonl.session_index import FileState, SessionIndex
from perdure.stores.maintenance.protocol import VacuumReport
from perdure.stores.retention.backups import Backup
from perdure.stores.retention.erase import EraseRequest
from perdure.stores.retention.policy import KEY_WINDOW_MS, Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage

KIND = "limits"
POLICY, QUOTA, KEYS = "retention", "quota", "keys"

T = TypeVar("T")

_policy = msgspec.json.Decoder(Retention)
_quota = msgspec.json.Decoder(Quota)
_moment = msgspec.json.Decoder(int)


class Limits:
    """The limits of one folder, on the thread of its handle."""

    def __init__(self, shelf: SessionIndex) -> None:
        self.shelf = shelf
        self.folder = shelf.folder

    def policy(self) -> Retention:
        """The policy of the namespace."""
        return decoded_side(self.folder, KIND, POLICY, _policy) or Retention()

    def set_policy(self, policy: Retention) -> None:
        """`policy` is that of the namespace from now on."""
        self._keep(POLICY, msgspec.json.encode(policy))

    # -- quotas

    def quota(self) -> Quota:
        """The quota of the namespace."""
        return decoded_side(self.folder, KIND, QUOTA, _quota) or Quota()

    def set_quota(self, quota: Quota) -> None:
        """`quota` is that of the namespace from now on."""
        with self.folder.hold_lock(QUOTA, ""):
            if quota.is_empty:
                self.folder.remove_side(KIND, QUOTA)
            else:
                self._keep(QUOTA, msgspec.json.encode(quota))

    def usage(self) -> Usage:
        """What the namespace holds."""
        standings = [standing for _, standing in self.shelf.standings()]
        contents = sum(sizes_of(blobs_in(self.folder)).values())
        return Usage(
            len(standings),
            sum(standing.head + 1 for standing in standings),
            sum(standing.payload for standing in standings) + contents,
        )

    @contextmanager
    def room(
        self, entries: Sequence[Entry], contents: Sequence[bytes], *, is_new: bool
    ) -> Generator[None]:
        """Room for a commit, until it is written. Raises: QuotaExceeded."""
        if self.quota().is_empty:
            yield
            return
        with self.folder.hold_lock(QUOTA, ""):
            quota = self.quota()
            kept = {path.name for path in blobs_in(self.folder)}
            new = {blob_hash(content): len(content) for content in contents}
            size = sum(size for name, size in new.items() if name not in kept)
            more = Usage(
                int(is_new), len(entries), size + sum(len(entry.body) for entry in entries)
            )
            over = self.usage().plus(more).over(quota, more)
            if over is not None:
                raise QuotaExceeded(over)
            yield

    # -- keys

    def keys_since(self) -> int:
        """Keys of commits made before this moment are forgotten."""
        return decoded_side(self.folder, KIND, KEYS, _moment) or 0

    def forget_keys(self, before: int) -> int:
        """What ``RetentionService.forget_keys`` promises."""
        with self.folder.hold_lock(KEYS, ""):
            since = self.keys_since()
            if before <= since:
                return 0
            found = [
                key
                for _, standing in list(self.shelf.standings())
                if (log := self.shelf.log(standing.header.id)) is not None
                for key, value in log.keys.items()
                if since <= value.at < before
            ]
            self._keep(KEYS, str(before).encode())
            for key in found:
                self.folder.remove_side("keys", key)
            return len(found)

    # -- sessions

    def holdings(self, now: int) -> list[Holding]:
        """What ``RetentionService.holdings`` promises: nothing is shared, so forks hold nothing."""
        found: list[Holding] = []
        for _, standing in list(self.shelf.standings()):
            log = self.shelf.log(standing.header.id)
            if log is not None and standing.header.kind == "session":
                with suppress(SessionNotFound):  # erased meanwhile
                    found.append(self._holding(standing, log, now))
        return found

    def _holding(self, standing: FileState, log: Log, now: int) -> Holding:
        return Holding(
            stream=standing.header.id,
            created_at=standing.header.created_at,
            active_at=standing.info.updated_at,
            entries=standing.head + 1,
            bytes=standing.payload,
            hold=self._hold(log, now),
        )

    def holder(self, stream: StreamId, now: int) -> Hold | None:
        """What ``RetentionService.holder`` promises."""
        log = self.shelf.log(stream)
        if log is None:
            raise SessionNotFound(stream)
        return self._hold(log, now)

    def _hold(self, log: Log, now: int) -> Hold | None:
        if log.open_turn is not None:
            return "turn"
        if is_running(lease_of(self.folder, log.header.id).until, now):
            return "lease"
        closed = {note.about for note in reads.notes(log, CLOSING)}
        asked = {note.id for note in reads.notes(log, (Question.kind,))}
        return "question" if asked - closed else None

    def _keep(self, name: str, content: bytes) -> None:
        self.folder.replace(KIND, name, content, is_synced=True)


class RetentionMethods(ABC):
    """`RetentionService` and `QuotaService`, for a handle that runs work on its thread."""

    _limits: Limits
    _eraser: Eraser
    _clock: Clock
    _random: RandomSource

    @abstractmethod
    async def _run(self, work: Callable[[], T]) -> T: ...

    async def retention(self) -> Retention:
        """What ``RetentionService.retention`` promises."""
        return await self._run(self._limits.policy)

    async def set_retention(self, policy: Retention) -> None:
        """What ``RetentionService.set_retention`` promises."""
        await self._run(lambda: self._limits.set_policy(policy))

    async def is_due(self, policy: Retention) -> bool:
        """What ``RetentionService.is_due`` promises."""
        return not policy.is_empty

    async def holdings(self) -> list[Holding]:
        """What ``RetentionService.holdings`` promises."""
        now = self._clock.now_ms()
        return await self._run(lambda: self._limits.holdings(now))

    async def holder(self, stream: StreamId) -> Hold | None:
        """What ``RetentionService.holder`` promises."""
        return await self._run(lambda: self._limits.holder(stream, self._clock.now_ms()))

    async def remove(self, stream: StreamId, *, is_erased: bool = False) -> bool:
        """What ``RetentionService.remove`` promises; nothing stays of an erased session."""
        if is_erased:
            return False
        now = self._clock.now_ms()
        request = EraseRequest(
            id=self._random(16).hex(), scope="session", by="retention", at=now, name=stream
        )
        return await self._run(
            lambda: self._eraser.remove(request, lambda: self._limits.holder(stream, now) is None)
        )

    async def forget_keys(self, before: int) -> int:
        """What ``RetentionService.forget_keys`` promises."""
        return await self._run(lambda: self._limits.forget_keys(before))

    async def give_back(self) -> int:
        """Nothing is left to give back: a file that is gone takes no space."""
        return await self._run(int)

    async def vacuum(self) -> VacuumReport:
        """What ``VacuumService.vacuum`` promises."""

        def work() -> VacuumReport:
            sizes = remove_unreferenced(self._limits.shelf)
            keys = self._limits.forget_keys(self._clock.now_ms() - KEY_WINDOW_MS)
            return VacuumReport(len(sizes), sum(sizes), sum(sizes), keys)

        return await self._run(work)

    async def remember_backup(self, backup: Backup) -> None:
        """What ``BackupRegistry.remember_backup`` promises."""
        await self._run(lambda: remember_backup(self._limits.folder, backup))

    async def backups(self) -> list[Backup]:
        """What ``BackupRegistry.backups`` promises."""
        return await self._run(lambda: backups(self._limits.folder))

    async def quota(self) -> tuple[Quota, Usage]:
        """What ``QuotaService.quota`` promises."""
        return await self._run(lambda: (self._limits.quota(), self._limits.usage()))

    async def set_quota(self, quota: Quota) -> None:
        """What ``QuotaService.set_quota`` promises."""
        await self._run(lambda: self._limits.set_quota(quota))
