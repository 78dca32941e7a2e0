"""The results of a benchmark, and the settings of its run."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.client.clock import SystemClock, system_random
from perdure.session.entries import NewEntry
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.protocol import Commit, CommitResult, Write
from perdure.stores.session_store import SessionStore
from perdure.stores.sqlite.store import SqliteStore
from perdure.stores.sqlite.writer import Durability

CLOCK = SystemClock()


class Run(msgspec.Struct, frozen=True):
    """One run of the benchmarks: the folder for its files, the random seed, and the length."""

    folder: Path
    seed: int
    is_quick: bool

    def count(self, full: int) -> int:
        """Return `full`, or a tenth of it in a quick run."""
        return max(full // 10, 50) if self.is_quick else full


class Figure(msgspec.Struct, frozen=True):
    """One line of the table.

    Shape: `raw` is the same measurement with the raw driver in the same run, if there is one. The
    claim is that `value` is at most `limit`, or at least `least`. Both are None for a value without
    a claim.
    """

    claim: str
    what: str
    value: float
    unit: str
    raw: float | None = None
    limit: float | None = None
    least: float | None = None

    @property
    def is_met(self) -> bool | None:
        """Whether the claim holds; None without a claim."""
        if self.least is not None:
            return self.value >= self.least
        return None if self.limit is None else self.value <= self.limit

    @property
    def goal(self) -> str:
        """Return the goal of `value` as text."""
        if self.least is not None:
            return f"≥ {self.least:,g}"
        return "" if self.limit is None else f"≤ {self.limit:,g}"


def shown(value: float) -> str:
    """Return `value` with three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


Benchmark = Callable[[Run], Coroutine[Any, Any, list[Figure]]]


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` are."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    """Return the median of `values`."""
    return percentile(values, 0.5)


class Stopwatch:
    """The milliseconds of each timed block, measured with `clock`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.laps_ms: list[float] = []
        self._clock = clock
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        self.laps_ms.append((self._clock() - self._began) * 1000)


async def opened(path: Path, durability: Durability) -> SqliteStore:
    """Open a store with the system clock."""
    return await SqliteStore.open(path, durability=durability, clock=CLOCK, random=system_random)


async def create(store: SessionStore, stream: StreamId) -> None:
    """Create an empty session."""
    header = StreamHeader(stream, CLOCK.now_ms())
    write = Write(stream=stream, create=header)
    await store.commit(Commit(writes=(write,), at=header.created_at))


async def append(
    store: SessionStore, stream: StreamId, entries: Sequence[NewEntry]
) -> CommitResult:
    """Append `entries` in one commit."""
    write = Write(stream=stream, entries=tuple(entries))
    return await store.commit(Commit(writes=(write,), at=CLOCK.now_ms()))


def size_of(path: Path) -> int:
    """Return the size of a closed database in bytes."""
    return path.stat().st_size
