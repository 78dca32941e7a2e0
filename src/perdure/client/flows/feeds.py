"""The feeds of a flow's roles, read from the store as far as they go, and on from there.

Only entries that are new since a point are read, and a point is a few values, however long the
logs are: whoever connects again gives the point they had, whoever comes late gives none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from perdure.errors import SessionNotFound
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.feed import FeedItem, FeedPoint, changes, merged
from perdure.session.ids import StreamId
from perdure.stores.protocol import LogReading


class Feeds:
    """The feeds of one flow."""

    def __init__(self, store: LogReading, flow: StreamId) -> None:
        self._store = store
        self._flow = flow

    async def read(
        self, role: str, after: FeedPoint | None = None
    ) -> tuple[FeedPoint, tuple[FeedItem, ...]]:
        """The items of `role` that came or changed since `after` (None: all), and the new point.

        Shape: an item replaces the one of the same id that was read before.
        """
        point = FeedPoint(role) if after is None else after
        return changes(point, (said for _, said in await self._log_of(role, point)))

    async def page(
        self, role: str, *, after: str | None = None, limit: int | None = None
    ) -> tuple[FeedItem, ...]:
        """At most `limit` items of `role` that come after the item called `after`, as they are now.

        Raises: ValueError when the feed has no such item.
        """
        _, items = await self.read(role)
        if after is not None:
            ids = [item.id for item in items]
            if after not in ids:
                raise ValueError(f"the feed of {role} has no item {after!r}")
            items = items[ids.index(after) + 1 :]
        return items if limit is None else items[:limit]

    async def log_of_all(
        self, roles: Iterable[str], points: Mapping[str, FeedPoint]
    ) -> list[tuple[str, tuple[Entry, object]]]:
        """What came since `points` for each of `roles`, all of it in the order of time."""
        logs = [await self._log_of(role, points.get(role, FeedPoint(role))) for role in roles]
        return sorted((said for log in logs for said in log), key=lambda said: said[1][0].at)

    async def _log_of(self, role: str, point: FeedPoint) -> list[tuple[str, tuple[Entry, object]]]:
        flow = await self._log(self._flow, point.flow_seq)
        session = await self._log(StreamId(f"{self._flow}__{role}"), point.session_seq)
        return [(role, said) for said in merged(flow, session)]

    async def _log(self, stream: StreamId, after: int) -> list[tuple[Entry, object]]:
        try:
            entries = await self._store.entries(stream, after=after)
        except SessionNotFound:
            return []  # the role has not begun
        return [(entry, body_of(entry)) for entry in entries if not entry.is_erased]


def encoded(point: FeedPoint) -> str:
    """`point` as text that somebody may keep."""
    return msgspec.json.encode(point).decode()


def decoded(text: str) -> FeedPoint:
    """The point that was written as `text`.

    Raises: ValueError when it is none.
    """
    return msgspec.json.decode(text, type=FeedPoint)
