"""What a namespace may hold at most: refused at the commit that would go over it."""

from __future__ import annotations

import msgspec


class Quota(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What a namespace may hold; None: any number.

    Units: `max_bytes` are those of bodies and of contents, each content once and as it is kept.
    Erased sessions and entries do not count.
    """

    max_sessions: int | None = None
    max_entries: int | None = None
    max_bytes: int | None = None

    @property
    def is_empty(self) -> bool:
        """It limits nothing."""
        return self == Quota()


class Usage(msgspec.Struct, frozen=True):
    """What a namespace holds of what a quota limits. Units: bytes."""

    sessions: int
    entries: int
    bytes: int

    def plus(self, more: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.sessions + more.sessions, self.entries + more.entries, self.bytes + more.bytes
        )

    def over(self, quota: Quota, more: Usage) -> str | None:
        """Which limit of `quota` this goes over, of those that `more`, just added, counts for."""
        for what in ("sessions", "entries", "bytes"):
            limit = getattr(quota, f"max_{what}")
            if limit is not None and getattr(more, what) and getattr(self, what) > limit:
                return what
        return None
