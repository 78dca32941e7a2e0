"""Copy streams from store to store in the simplest way: one stream after the other, in segments."""

from __future__ import annotations

from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore


def as_sealing(store: SessionStore) -> SessionStore:
    """Return `store`, typed as a store that supports segments."""
    return store


async def pass_on(source: SessionStore, target: SessionStore, *, limit: int = 100) -> None:
    """Copy all streams of `source` in segments of `limit` commits, without contents."""
    for standing in await source.maintenance.segment_states():
        after = EMPTY
        while True:
            share = await source.maintenance.read_segment(
                standing.stream, after=after, upto=standing.head, limit=limit
            )
            await target.maintenance.receive(share, ())
            if not share.commits or share.commits[-1].last == standing.head:
                break
            after = share.commits[-1].last
