"""Retention: how long a namespace keeps its sessions, and which sessions expire.

A session is removed whole or not at all. Forks protect the entries that they share. An open or
requested turn, an open question and a lease protect a session. `expiring` is pure. A backend lists
its sessions, and removes one session at a time while other calls write.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from perdure.session.ids import StreamId

Why = Literal["age", "idle", "count", "bytes"]
Hold = Literal["forks", "turn", "question", "lease"]

KEY_WINDOW_MS = 30 * 24 * 3_600_000
"""Minimum lifetime of an idempotency key: 30 days.

A retention run or a vacuum deletes older keys.
"""


class Retention(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The limits of a namespace; None means no limit.

    Units: seconds and bytes. `max_age_s` limits the time since a session was created. `max_idle_s`
    limits the time since the session's newest user or assistant message. `max_bytes` limits the
    size of all bodies. With `max_sessions` or `max_bytes`, the sessions with the oldest activity
    are removed first.
    """

    max_age_s: int | None = None
    max_idle_s: int | None = None
    max_sessions: int | None = None
    max_bytes: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing expires."""
        return self == Retention()


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A session's data that retention needs. Units: times in Unix milliseconds; bytes of bodies.

    `entries` includes erased entries, so the session's head is ``entries - 1``.
    """

    stream: StreamId
    created_at: int
    active_at: int
    entries: int
    bytes: int
    forks: tuple[StreamId, ...] = ()
    hold: Hold | None = None


class ExpiringSession(msgspec.Struct, frozen=True):
    """A session that expires, and the reason."""

    stream: StreamId
    why: Why
    entries: int
    bytes: int


class HeldSession(msgspec.Struct, frozen=True):
    """A session that would expire but is protected."""

    stream: StreamId
    why: Why
    hold: Hold


class RetentionPlan(msgspec.Struct, frozen=True):
    """The expiring sessions in a possible removal order (forks first), and protected sessions."""

    expiring: tuple[ExpiringSession, ...] = ()
    held: tuple[HeldSession, ...] = ()


class RetentionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a retention run.

    Units: bytes; `freed_bytes` is the space by which the store's files shrank. `keys` counts
    deleted idempotency keys.
    """

    plan: RetentionPlan
    sessions: int = 0
    entries: int = 0
    bytes: int = 0
    keys: int = 0
    freed_bytes: int = 0


def expiring(holdings: Iterable[Holding], policy: Retention, now: int) -> RetentionPlan:
    """Return the sessions among `holdings` that expire under `policy` at `now`."""
    oldest_first = sorted(holdings, key=lambda each: (each.active_at, each.stream))
    wanted = _candidates(oldest_first, policy, now)
    by_id = {each.stream: each for each in oldest_first}
    going: dict[StreamId, ExpiringSession] = {}
    while True:
        free = [
            by_id[id_]
            for id_ in wanted
            if id_ not in going and by_id[id_].hold is None and going.keys() >= {*by_id[id_].forks}
        ]
        if not free:
            break
        for each in free:
            why = wanted[each.stream]
            going[each.stream] = ExpiringSession(each.stream, why, each.entries, each.bytes)
    held = [
        HeldSession(id_, why, by_id[id_].hold or "forks")
        for id_, why in wanted.items()
        if id_ not in going
    ]
    return RetentionPlan(tuple(going.values()), tuple(held))


def _candidates(oldest_first: list[Holding], policy: Retention, now: int) -> dict[StreamId, Why]:
    """Return the sessions over a limit, including protected ones."""
    found: dict[StreamId, Why] = {}
    for each in oldest_first:
        if _is_over(now - each.created_at, policy.max_age_s):
            found[each.stream] = "age"
        elif _is_over(now - each.active_at, policy.max_idle_s):
            found[each.stream] = "idle"
    left = [each for each in oldest_first if each.stream not in found]
    if policy.max_sessions is not None:
        surplus = max(0, len(left) - policy.max_sessions)
        found |= {each.stream: "count" for each in left[:surplus]}
        left = left[surplus:]
    if policy.max_bytes is not None:
        total = sum(each.bytes for each in left)
        for each in left:
            if total <= policy.max_bytes:
                break
            found[each.stream] = "bytes"
            total -= each.bytes
    return found


def is_over(held: int, limit: int | None) -> bool:
    """Return whether `held` exceeds `limit`; a `limit` of None is never exceeded."""
    return limit is not None and held > limit


def oldest_kept(limit_s: int | None, now: int) -> int | None:
    """Return the time before which data is expired; None if no limit is set.

    The time is `limit_s` before `now`.
    """
    return None if limit_s is None else now - limit_s * 1000


def _is_over(passed_ms: int, limit_s: int | None) -> bool:
    return limit_s is not None and passed_ms > limit_s * 1000
