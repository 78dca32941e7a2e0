"""Sources of time and randomness, always passed as arguments.

This module also defines the format of timestamps in all JSON of perdure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_MS = -62_135_596_800_000  # 0001-01-01
LAST_MS = 253_402_300_799_999  # 9999-12-31


class Clock(Protocol):
    """Returns the time of day, and a monotonic time for measuring durations."""

    def now_ms(self) -> int:
        """Return the Unix time in milliseconds.

        The time can jump when the machine's clock is set.
        """
        ...

    def steady_s(self) -> float:
        """Return the seconds since a fixed moment; the value never decreases.

        Use this clock for durations and deadlines only.
        """
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`; return immediately for zero or less. Cancellable."""
        ...


class RandomSource(Protocol):
    """A source of unguessable bytes, for ids and salts."""

    def __call__(self, count: int, /) -> bytes:
        """Return `count` random bytes."""
        ...


def timestamp(at: int) -> str:
    """Return Unix milliseconds as ISO 8601 in UTC, with milliseconds and ``Z``."""
    return moment_of(at).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def minute(at: int) -> str:
    """Return Unix milliseconds as a date and a time in UTC, to the minute."""
    return moment_of(at).replace(tzinfo=None).isoformat(" ", "minutes")


def moment_of(at: int) -> datetime:
    """Convert Unix milliseconds to a UTC datetime; out-of-range times become the nearest limit."""
    return _EPOCH + timedelta(milliseconds=min(max(at, _FIRST_MS), LAST_MS))


def ms_of(moment: datetime) -> int:
    """Convert `moment` to Unix milliseconds; a time without a zone is local."""
    try:
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):  # so near the limits of datetime that the zone lookup fails
        return round(moment.replace(tzinfo=UTC).timestamp() * 1000)
