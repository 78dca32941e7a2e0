"""Streams passed from store to store, the plain way: one after the other, in parts."""

from __future__ import annotations

from perdure.stores.maintenance.segments import SegmentService
from perdure.stores.protocol import EMPTY, SessionStore


def as_sealing(store: SessionStore) -> SegmentService:
    """`store`, which can pass streams on."""
    assert isinstance(store, SegmentService)
    return store


async def pass_on(source: SessionStore, target: SessionStore, *, limit: int = 100) -> None:
    """Everything in `source`, in parts of `limit` commits; no contents."""
    for standing in await as_sealing(source).segment_states():
        after = EMPTY
        while True:
            share = await as_sealing(source).read_segment(
                standing.stream, after=after, upto=standing.head, limit=limit
            )
            await as_sealing(target).receive(share, ())
            if not share.commits or share.commits[-1].last == standing.head:
                break
            after = share.commits[-1].last
