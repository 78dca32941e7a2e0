"""Streams passed from store to store, the plain way: one after the other, in parts."""

from __future__ import annotations

from perdure.stores.maintenance.segments import Sealing
from perdure.stores.protocol import EMPTY, SessionStore


def as_sealing(store: SessionStore) -> Sealing:
    """`store`, which can pass streams on."""
    assert isinstance(store, Sealing)
    return store


async def pass_on(source: SessionStore, target: SessionStore, *, limit: int = 100) -> None:
    """Everything in `source`, in parts of `limit` commits; no contents."""
    for standing in await as_sealing(source).standings():
        after = EMPTY
        while True:
            share = await as_sealing(source).sealed(
                standing.stream, after=after, upto=standing.head, limit=limit
            )
            await as_sealing(target).receive(share, ())
            if not share.commits or share.commits[-1].last == standing.head:
                break
            after = share.commits[-1].last
