"""How long a lease may run, so that none that is forged or of a wrong clock locks a session."""

from __future__ import annotations

LONGEST_LEASE_MS = 86_400_000
"""A lease is given for no longer, so one that claims more has run out: a received file or a wrong
clock made it."""


def lease_end(now: int, ttl_ms: int) -> int:
    """When a lease ends that is taken at `now`. Units: Unix milliseconds."""
    return now + min(ttl_ms, LONGEST_LEASE_MS)


def is_running(until: int, now: int) -> bool:
    """Whether a lease that ends at `until` runs at `now`. Units: Unix milliseconds."""
    return now < until <= now + LONGEST_LEASE_MS


def holder_at(now: int, owner: str | None, until: int) -> str | None:
    """Return the `owner` of a lease that ends at `until`; None if it was given back or ran out."""
    return owner if owner and is_running(until, now) else None
