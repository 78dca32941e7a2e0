"""Limit the term of leases, so that a forged lease or a wrong clock cannot lock a session."""

from __future__ import annotations

LONGEST_LEASE_MS = 86_400_000
"""Longest term of a lease.

A lease with a longer term counts as expired: it comes from a received file or a wrong clock.
"""


def lease_end(now: int, ttl_ms: int) -> int:
    """Return the end of a lease acquired at `now`. Units: Unix milliseconds."""
    return now + min(ttl_ms, LONGEST_LEASE_MS)


def is_running(until: int, now: int) -> bool:
    """Return whether a lease that ends at `until` is valid at `now`. Units: Unix milliseconds."""
    return now < until <= now + LONGEST_LEASE_MS


def holder_at(now: int, owner: str | None, until: int) -> str | None:
    """Return the `owner` of a lease that ends at `until`; None if it is released or expired."""
    return owner if owner and is_running(until, now) else None
