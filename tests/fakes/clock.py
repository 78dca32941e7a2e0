"""Time that changes only when a test advances it, and random bytes that are the same every run."""

from __future__ import annotations

import asyncio
import random

START_MS = 1_700_000_000_000
"""The first time of a `ManualClock`, Unix milliseconds: a real date, to reveal wrong units."""


class ManualClock:
    """A `session.clock.Clock` that only `advance` moves. Use one clock in one event loop."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = now_ms
        self._steady_s = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []

    def now_ms(self) -> int:
        """The time of day, in Unix milliseconds."""
        return self._now_ms

    def steady_s(self) -> float:
        """Return the seconds by which this clock was advanced."""
        return self._steady_s

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock was advanced by `seconds`."""
        if seconds <= 0:
            return
        due = self._steady_s + seconds
        sleeper = (due, asyncio.get_running_loop().create_future())
        self._sleepers.append(sleeper)
        try:
            await sleeper[1]
        finally:
            self._sleepers = [other for other in self._sleepers if other is not sleeper]

    @property
    def sleepers(self) -> tuple[float, ...]:
        """Return the remaining seconds of each sleeper, shortest first."""
        return tuple(sorted(due - self._steady_s for due, _ in self._sleepers))

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; each sleeper whose time is over will continue."""
        self._steady_s += seconds
        self._now_ms += round(seconds * 1000)
        for due, awakening in self._sleepers:
            if due <= self._steady_s and not awakening.done():
                awakening.set_result(None)

    def set_time_of_day(self, now_ms: int) -> None:
        """Set the time of day; the steady time does not change."""
        self._now_ms = now_ms


def pass_loop_time(seconds: float) -> None:
    """Move the clock of the running event loop forward by `seconds`, to test long waits quickly.

    The timers of the loop that end by then fire in its next iteration.
    """
    loop = asyncio.get_running_loop()
    time_before = loop.time
    loop.time = lambda: time_before() + seconds


class SeededRandom:
    """A `session.clock.RandomSource` whose bytes follow from its seed."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def __call__(self, count: int, /) -> bytes:
        """Return the next `count` bytes."""
        return self._random.randbytes(count)
