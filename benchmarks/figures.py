"""What a benchmark finds out, and the settings it runs with."""

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
    """One run of the benchmarks: where its files go, where its chance comes from, how long."""

    folder: Path
    seed: int
    is_quick: bool

    def count(self, full: int) -> int:
        """`full` of something, a tenth in a quick run."""
        return max(full // 10, 50) if self.is_quick else full


class Figure(msgspec.Struct, frozen=True):
    """One line of the table.

    Shape: `raw` is the same measured on the raw driver in the same run, where there is such a
    thing; `limit` is what `value` may be at most, `least` what it must be at least, by the claim;
    both None where it is only shown.
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
        """Whether the claim holds; None where there is none."""
        if self.least is not None:
            return self.value >= self.least
        return None if self.limit is None else self.value <= self.limit

    @property
    def goal(self) -> str:
        """What `value` is to be."""
        if self.least is not None:
            return f"≥ {self.least:,g}"
        return "" if self.limit is None else f"≤ {self.limit:,g}"


def shown(value: float) -> str:
    """Three figures that mean something."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


Benchmark = Callable[[Run], Coroutine[Any, Any, list[Figure]]]


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of `values` lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return percentile(values, 0.5)


class Stopwatch:
    """Milliseconds of each thing that was timed, by `clock`."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.laps_ms: list[float] = []
        self._clock = clock
        self._began = 0.0

    def __enter__(self) -> None:
        self._began = self._clock()

    def __exit__(self, *_: object) -> None:
        self.laps_ms.append((self._clock() - self._began) * 1000)


async def opened(path: Path, durability: Durability) -> SqliteStore:
    """A store on the machine's own clock."""
    return await SqliteStore.open(path, durability=durability, clock=CLOCK, random=system_random)


async def create(store: SessionStore, stream: StreamId) -> None:
    """An empty session."""
    header = StreamHeader(stream, CLOCK.now_ms())
    write = Write(stream=stream, create=header)
    await store.commit(Commit(writes=(write,), at=header.created_at))


async def append(
    store: SessionStore, stream: StreamId, entries: Sequence[NewEntry]
) -> CommitResult:
    """One commit."""
    write = Write(stream=stream, entries=tuple(entries))
    return await store.commit(Commit(writes=(write,), at=CLOCK.now_ms()))


def size_of(path: Path) -> int:
    """Bytes of a closed database."""
    return path.stat().st_size
