"""Where time and randomness come from: always an argument, never a call out of the blue."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """The time of day, and a steady time for measuring how long something took."""

    def now_ms(self) -> int:
        """Unix time in milliseconds. It may jump when the machine's clock is set."""
        ...

    def steady_s(self) -> float:
        """Seconds since some fixed moment; never goes back. For durations and deadlines only."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass; returns at once for zero or less. Can be cancelled."""
        ...


class RandomSource(Protocol):
    """Unguessable bytes, for ids and salts."""

    def __call__(self, count: int, /) -> bytes:
        """`count` random bytes."""
        ...
