"""Streams passed from store to store, the plain way: one after the other, in parts."""

from __future__ import annotations

from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore


def as_sealing(store: SessionStore) -> SessionStore:
    """`store`, which can pass streams on."""
    return store


async def pass_on(source: SessionStore, target: SessionStore, *, limit: int = 100) -> None:
    """Everything in `source`, in parts of `limit` commits; no contents."""
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
