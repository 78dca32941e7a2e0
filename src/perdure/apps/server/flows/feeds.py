"""The feed of a role: each item refers to the entry that it comes from."""

from __future__ import annotations

import msgspec

from perdure.apps.server.flows.values import FeedItemView, FeedPage
from perdure.apps.server.values import time_of
from perdure.apps.server.views import view_of
from perdure.client.flows.feeds import Feeds, decode_point, encode_point
from perdure.client.store import Store
from perdure.errors import WrongArgument
from perdure.session.entries import Entry
from perdure.session.flows.feed import FeedItem, FeedPoint, begins_turn, feed_after
from perdure.session.ids import StreamId
from perdure.session.ledger import TurnStarted


async def read_feed(
    store: Store, flow: StreamId, role: str, after: str | None, limit: int
) -> FeedPage:
    """Read approximately `limit` items of the feed of `role` after the cursor `after`.

    A page does not end between a claim and the turn that the claim starts.

    Raises: WrongArgument if the cursor is from another feed.
    """
    point = FeedPoint(role) if after is None else _point(after, role)
    log = await Feeds(store.backend, flow).log_of_all((role,), {role: point})
    session = StreamId(f"{flow}__{role}")
    found: dict[str, FeedItemView] = {}
    is_turn_due, is_cut = False, False
    for _, (entry, body) in log:
        # A turn and the claim it begins with stay together: only so do they show their order.
        if len(found) >= limit and not is_turn_due:
            is_cut = True
            break
        point, items = feed_after(point, entry, body)
        found.update((item.id, _view(item, entry)) for item in items)
        is_turn_due = begins_turn(body, session) or (
            is_turn_due and not isinstance(body, TurnStarted)
        )
    return FeedPage(items=[*found.values()], cursor=encode_point(point), has_more=is_cut)


def _point(cursor: str, role: str) -> FeedPoint:
    try:
        point = decode_point(cursor)
    except (ValueError, msgspec.DecodeError):
        raise WrongArgument("after is no cursor of a feed") from None
    if point.role != role:
        raise WrongArgument(f"after is a cursor of the feed of {point.role!r}, not of {role!r}")
    return point


def _view(item: FeedItem, entry: Entry) -> FeedItemView:
    is_redacted = item.reasoning_display is not None
    return view_of(
        FeedItemView, item, is_redacted=is_redacted, at=time_of(entry.at), entry_id=entry.id
    )
