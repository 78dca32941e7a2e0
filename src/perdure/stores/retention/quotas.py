"""Quotas of a namespace: a commit that would exceed a quota is rejected."""

from __future__ import annotations

import msgspec

from perdure.session.info import StreamHeader


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The limits of a namespace; None means no limit.

    `max_sessions` limits sessions and flows together; streams of facts about a person do not count.

    Units: `max_bytes` limits the bytes of bodies and contents together; each content counts once,
    in its stored size. Erased sessions and entries do not count.
    """

    max_sessions: int | None = None
    max_entries: int | None = None
    max_bytes: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the quota sets no limit."""
        return self == Quota()


def is_counted(header: StreamHeader) -> bool:
    """Return whether a stream counts as one of the `max_sessions`."""
    return header.kind != "memory"


class Usage(msgspec.Struct, frozen=True):
    """The usage of a namespace that a quota limits. Units: bytes."""

    sessions: int
    entries: int
    bytes: int

    def plus(self, more: Usage) -> Usage:
        """Return the sum of this usage and `more`."""
        return Usage(
            self.sessions + more.sessions, self.entries + more.entries, self.bytes + more.bytes
        )

    def over(self, quota: Quota, more: Usage) -> str | None:
        """Return a limit of `quota` that this usage exceeds, and that `more` contributes to."""
        for what in ("sessions", "entries", "bytes"):
            limit = getattr(quota, f"max_{what}")
            if limit is not None and getattr(more, what) and getattr(self, what) > limit:
                return what
        return None
