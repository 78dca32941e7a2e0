"""Where time and randomness come from: always an argument, never a call out of the blue.

And how a moment is written, wherever JSON of perdure holds one.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = -62_135_596_800_000  # 0001-01-01: what lies outside of the calendar is shown at its end
_LAST_MS = 253_402_300_799_999  # 9999-12-31


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


def timestamp(at: int) -> str:
    """Unix milliseconds as ISO 8601 in UTC, with milliseconds and ``Z``."""
    within = min(max(at, _FIRST_MS), _LAST_MS)
    moment = _EPOCH + timedelta(milliseconds=within)
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def ms_of(moment: datetime) -> int:
    """`moment` in Unix milliseconds; one without a zone is of the local one."""
    try:
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):  # so near the ends of time that no zone can be looked up
        return round(moment.replace(tzinfo=UTC).timestamp() * 1000)
