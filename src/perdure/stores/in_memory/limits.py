"""Retention and quotas of a namespace in memory: each operation is one uninterrupted step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from perdure.errors import QuotaExceeded
from perdure.session.entries import Entry
from perdure.session.ids import StreamId, blob_hash
from perdure.session.ledger import TurnRequested
from perdure.session.notes import Question
from perdure.stores.access.lease_term import is_running
from perdure.stores.in_memory.erase import forget_keys_of, without_contents
from perdure.stores.in_memory.streams import Heap, HeldStream, held_in, open_in
from perdure.stores.protocol import Commit
from perdure.stores.retention.policy import Hold, Holding, Retention
from perdure.stores.retention.quotas import Quota, Usage, is_counted


@dataclass(slots=True)
class Limits:
    """Retention policy and quota of one namespace; with a quota, `used` is the current usage."""

    policy: Retention = field(default_factory=Retention)
    quota: Quota = field(default_factory=Quota)
    used: Usage = field(default_factory=lambda: Usage(0, 0, 0))

    def count(self, heap: Heap) -> None:
        """Recompute the usage of `heap` after a change other than a commit."""
        if not self.quota.is_empty:
            self.used = usage_of(heap)

    def check(self, heap: Heap, commit: Commit, entries: Sequence[Sequence[Entry]]) -> None:
        """Add the `entries` and contents of `commit` to the usage.

        Raises: QuotaExceeded; the usage then stays unchanged.
        """
        if self.quota.is_empty:
            return
        new = {blob_hash(content): len(content) for content in commit.blobs}
        used = self.used
        more = Usage(
            sum(write.create is not None and is_counted(write.create) for write in commit.writes),
            sum(map(len, entries)),
            sum(len(entry.body) for each in entries for entry in each)
            + sum(size for name, size in new.items() if name not in heap.blobs),
        )
        self.used = used.plus(more)
        over = self.used.over(self.quota, more)
        if over is not None:
            self.used = used
            raise QuotaExceeded(over)


def usage_of(heap: Heap) -> Usage:
    """Return the usage of the namespace, without erased data."""
    rows = [row for held in heap.streams.values() for row in held.rows]
    return Usage(
        sum(
            held.state.info.status != "erased" and is_counted(held.state.header)
            for held in heap.streams.values()
        ),
        sum(row.salt is not None for row in rows),
        sum(len(row.entry.body) for row in rows) + sum(map(len, heap.blobs.values())),
    )


def holdings(heap: Heap, now: int) -> list[Holding]:
    """Implement ``RetentionService.holdings``."""
    forks = _forks(heap)
    return [
        Holding(
            stream=stream,
            created_at=held.state.header.created_at,
            active_at=held.state.info.updated_at,
            entries=held.state.head + 1,
            bytes=sum(len(row.entry.body) for row in held.rows),
            forks=tuple(forks[stream]),
            hold=_hold(held, now),
        )
        for stream, held in heap.streams.items()
        if held.state.header.kind == "session" and held.state.info.status != "erased"
    ]


def _forks(heap: Heap) -> dict[StreamId, list[StreamId]]:
    found: dict[StreamId, list[StreamId]] = defaultdict(list)
    for stream, held in heap.streams.items():
        fork = held.state.header.fork
        if fork is not None:
            found[fork.stream].append(stream)
    return found


def _hold(held: HeldStream, now: int) -> Hold | None:
    if held.state.open_turn is not None or open_in(held, TurnRequested.kind):
        return "turn"
    if is_running(held.until, now):
        return "lease"
    return "question" if open_in(held, Question.kind) else None


def holder(heap: Heap, stream: StreamId, now: int) -> Hold | None:
    """Implement ``RetentionService.holder``."""
    held = held_in(heap, stream)
    return "forks" if _forks(heap)[stream] else _hold(held, now)


def remove(heap: Heap, stream: StreamId, now: int) -> bool:
    """Implement ``RetentionService.remove``.

    The positions of the removed session's entries stay empty.
    """
    if holder(heap, stream, now) is not None:
        return False
    held = held_in(heap, stream)
    bodies = [row.entry.body for row in held.rows]
    forget_keys_of(heap, stream)
    for row in held.rows:
        heap.nodes.pop(row.entry.id, None)
    del heap.streams[stream]
    for index, entry in enumerate(heap.log):
        if entry is not None and entry.stream == stream:
            heap.log[index] = None
            heap.vectors.discard(index + 1)
    without_contents(heap, bodies)
    return True


def forget_keys(heap: Heap, before: int) -> int:
    """Implement ``RetentionService.forget_keys``."""
    old = [key for key, kept in heap.keys.items() if kept.at < before]
    for key in old:
        del heap.keys[key]
    return len(old)
