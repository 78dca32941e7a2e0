"""Store the retention and quotas of a folder in small files next to the session files.

With a quota, every commit counts the usage in the namespace's files, under a lock. So lines that
another program or a killed process wrote are counted too. Without a quota, a commit only checks
whether a quota exists. An idempotency key stays in its session file. So a key is forgotten without
being deleted: a time is stored, and all keys that were used before this time count as forgotten.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from perdure.errors import QuotaExceeded, SessionNotFound
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.ledger import TurnRequested
from perdure.session.memory.open_entries import OPEN_KINDS, unclosed
from perdure.session.notes import Question
from perdure.stores.access.lease_term import is_running
from perdure.stores.jsonl import reads
from perdure.stores.jsonl.disk.sidefiles import blobs_in, decoded_side, lease_of
from perdure.stores.jsonl.index import Log
from perdure.stores.jsonl.retention.content_gc import sizes_of
from perdure.stores.jsonl.session_index import FileState, SessionIndex
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage, is_counted

KIND = "limits"
POLICY, QUOTA, KEYS, PROBE = "retention", "quota", "keys", "probe"

T = TypeVar("T")

_policy = msgspec.json.Decoder(Retention)
_quota = msgspec.json.Decoder(Quota)
_moment = msgspec.json.Decoder(int)


class Limits:
    """Stores the limits of one folder; only the thread of the folder's handle may use it."""

    def __init__(self, shelf: SessionIndex) -> None:
        self.shelf = shelf
        self.folder = shelf.folder

    def policy(self) -> Retention:
        """Return the policy of the namespace."""
        return decoded_side(self.folder, KIND, POLICY, _policy) or Retention()

    def set_policy(self, policy: Retention) -> None:
        """Set the policy of the namespace."""
        self._keep(POLICY, msgspec.json.encode(policy))

    def write_probe(self) -> None:
        """Write an empty file that no reader uses, to check that the folder is writable."""
        self._keep(PROBE, b"")

    # -- quotas

    def quota(self) -> Quota:
        """Return the quota of the namespace."""
        return decoded_side(self.folder, KIND, QUOTA, _quota) or Quota()

    def set_quota(self, quota: Quota) -> None:
        """Set the quota of the namespace."""
        with self.folder.hold_lock(QUOTA, ""):
            if quota.is_empty:
                with suppress(FileNotFoundError):
                    self.folder.remove(self.folder.side(KIND, QUOTA), is_synced=True)
            else:
                self._keep(QUOTA, msgspec.json.encode(quota))

    def usage(self) -> Usage:
        """Return the usage of the namespace."""
        standings = [standing for _, standing in self.shelf.standings()]
        contents = sum(sizes_of(blobs_in(self.folder)).values())
        return Usage(
            sum(is_counted(standing.header) for standing in standings),
            sum(standing.head + 1 for standing in standings),
            sum(standing.payload for standing in standings) + contents,
        )

    @contextmanager
    def room(
        self, entries: Sequence[Entry], contents: Sequence[bytes], *, is_new: bool
    ) -> Generator[None]:
        """Reserve room for a commit until the commit is written. Raises: QuotaExceeded."""
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
        """Return the stored time: idempotency keys used before it count as forgotten."""
        return decoded_side(self.folder, KIND, KEYS, _moment) or 0

    def forget_keys(self, before: int) -> int:
        """Implement ``RetentionService.forget_keys``."""
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
        """Implement ``RetentionService.holdings``.

        A fork has its own copies of the entries, so a fork does not protect its origin from
        erasure.
        """
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
        """Implement ``RetentionService.holder``."""
        return self._hold(self.shelf.require_log(stream), now)

    def _hold(self, log: Log, now: int) -> Hold | None:
        notes = reads.notes(log, OPEN_KINDS)
        if log.open_turn is not None or unclosed(notes, TurnRequested.kind):
            return "turn"
        if is_running(lease_of(self.folder, log.header.id).until, now):
            return "lease"
        return "question" if unclosed(notes, Question.kind) else None

    def _keep(self, name: str, content: bytes) -> None:
        self.folder.replace(KIND, name, content, is_synced=True)
