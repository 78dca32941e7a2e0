"""The feeds of a flow's roles, read from the store incrementally.

Each read returns only entries after a given point.
The size of a point does not depend on the length of
the logs. A client that reconnects passes the last point that it received; a new client passes no
point.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence

import msgspec

from perdure.errors import SessionNotFound, WrongArgument
from perdure.session.codec import body_of
from perdure.session.entries import Entry
from perdure.session.flows.feed import (
    FeedItem,
    FeedPoint,
    begins_turn,
    changes,
    feed_after,
    merge_logs,
)
from perdure.session.flows.kinds import FlowCompleted
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnStarted
from perdure.stores.protocol import LogReader
from perdure.stores.session_store import SessionStore


class Feeds:
    """Reads the feeds of the roles of one flow."""

    def __init__(self, store: LogReader, flow: StreamId) -> None:
        self._store = store
        self._flow = flow

    async def read(
        self, role: str, after: FeedPoint | None = None, limit: int | None = None
    ) -> tuple[FeedPoint, tuple[FeedItem, ...]]:
        """Return the next point, and the items of `role` that have changed since the point `after`.

        If `after` is None, all items are returned. With `limit`, a read returns approximately
        `limit` items, because related items stay together. The next read continues from the
        returned point.
        Shape: an item replaces an earlier item with the same id.
        """
        point = FeedPoint(role) if after is None else after
        log = (said for _, said in await self._log_of(role, point))
        if limit is None:
            return changes(point, log)
        return _some_changes(point, log, StreamId(f"{self._flow}__{role}"), limit)

    async def page(
        self, role: str, *, after: str | None = None, limit: int | None = None
    ) -> tuple[FeedItem, ...]:
        """Return at most `limit` items of `role` after the item with the id `after`.

        Raises: ValueError when the feed has no item with the id `after`.
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
        """Return the entries of `roles` after each role's point in `points`, ordered by time."""
        logs = [await self._log_of(role, points.get(role, FeedPoint(role))) for role in roles]
        return sorted((said for log in logs for said in log), key=lambda said: said[1][0].at)

    async def _log_of(self, role: str, point: FeedPoint) -> list[tuple[str, tuple[Entry, object]]]:
        session = StreamId(f"{self._flow}__{role}")
        flow = await self._log(self._flow, point.flow_seq)
        said: list[tuple[Entry, object]] = []
        while True:
            said += await self._log(session, _newest(said, point.session_seq))
            # Otherwise a commit to both logs in between would be read only in part.
            more = await self._log(self._flow, _newest(flow, point.flow_seq))
            if not more:
                return [(role, each) for each in merge_logs(flow, said)]
            flow += more

    async def _log(self, stream: StreamId, after: int) -> list[tuple[Entry, object]]:
        try:
            entries = await self._store.entries(stream, after=after)
        except SessionNotFound:
            return []  # the role has not begun
        return [(entry, body_of(entry)) for entry in entries if not entry.is_erased]


def _newest(log: Sequence[tuple[Entry, object]], before: int) -> int:
    """Return the seq of the last entry of `log`, or `before` if `log` is empty."""
    return log[-1][0].seq if log else before


class RoleFeed:
    """The feed of one role of a flow.

    Each read begins where the previous read ended. `Flow.feed` returns a feed.

    ``await feed.read()`` returns new and changed items. ``async for item in feed`` yields new and
    changed items, and waits for more until the flow is completed or the store is closed. If a new
    item has the id of an earlier item, the new item replaces the earlier item, because the new item
    has more text or an outcome.
    """

    def __init__(
        self, store: SessionStore, flow: StreamId, role: str, after: str | None = None
    ) -> None:
        self._store = store
        self._flow = flow
        self._role = role
        self._feeds = Feeds(store, flow)
        self._point = FeedPoint(role) if after is None else _point_of(role, after)

    def __repr__(self) -> str:
        return f"<RoleFeed flow={self._flow!r} role={self._role!r}>"

    @property
    def cursor(self) -> str:
        """The position of this feed; any process can pass it to `Flow.feed` to continue from it."""
        return encode_point(self._point)

    async def read(self, limit: int | None = None) -> tuple[FeedItem, ...]:
        """Return the items that are new or changed since the last read.

        If `limit` is given, approximately `limit` items are returned. Shape: the result is () if no
        item is new or changed.
        Raises: WrongArgument when `limit` is less than 1.
        """
        if limit is not None and limit < 1:
            raise WrongArgument(f"limit is at least 1, not {limit}")
        items: tuple[FeedItem, ...] = ()
        while not items:
            before = self._point
            self._point, items = await self._feeds.read(self._role, self._point, limit)
            if self._point == before:
                break
        return items

    async def __aiter__(self) -> AsyncIterator[FeedItem]:
        changes = self._store.changes()
        while True:  # the first read needs no wake-up: none comes if the store's file was removed
            is_over = bool(await self._store.notes(self._flow, (FlowCompleted.kind,)))
            for item in await self.read():
                yield item
            if is_over or await anext(changes, "closed") == "closed":
                return


def _point_of(role: str, cursor: str) -> FeedPoint:
    """Return the point that `cursor` encodes.

    Raises: WrongArgument if `cursor` belongs to another role.
    """
    try:
        point = decode_point(cursor)
    except (ValueError, msgspec.DecodeError) as error:
        raise WrongArgument(
            f"{cursor!r} is no cursor of a feed; give one that a feed had"
        ) from error
    if point.role != role:
        raise WrongArgument(f"the cursor is of the feed of {point.role}, not of {role}")
    return point


def _some_changes(
    point: FeedPoint, log: Iterable[tuple[Entry, object]], session: StreamId, limit: int
) -> tuple[FeedPoint, tuple[FeedItem, ...]]:
    """Return the new point and `limit` changed items, or a few more to complete a turn."""
    changed: dict[str, FeedItem] = {}
    is_turn_due = False
    for entry, body in log:
        # Never split a turn from the claim it begins with: only together do they show their order.
        if len(changed) >= limit and not is_turn_due:
            break
        point, items = feed_after(point, entry, body)
        changed.update((item.id, item) for item in items)
        is_turn_due = begins_turn(body, session) or (
            is_turn_due and not isinstance(body, TurnStarted)
        )
    return point, tuple(changed.values())


def encode_point(point: FeedPoint) -> str:
    """Return `point` as text that a client can store."""
    return msgspec.json.encode(point).decode()


def decode_point(text: str) -> FeedPoint:
    """Return the point encoded as `text`.

    Raises: ValueError when `text` is invalid.
    """
    return msgspec.json.decode(text, type=FeedPoint)
