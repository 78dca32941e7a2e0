"""Figures of a store."""

from __future__ import annotations

from contextlib import suppress

from perdure.client.store import Store
from perdure.errors import SessionNotFound, Unsupported
from perdure.stores.copy import NAME_OF_CONTENT
from perdure.stores.maintenance.segments import SOME_COMMITS, SegmentState
from perdure.stores.maintenance.stats import (
    DAY_MS,
    DAYS,
    Growth,
    NamespaceFigures,
    StoreFigures,
    StreamSize,
    figures_of,
)
from perdure.stores.protocol import EMPTY
from perdure.stores.session_store import SessionStore


async def figures(store: Store, *, days: int = DAYS) -> StoreFigures:
    """What the store holds, what is largest, and what was added in the last `days`.

    Only of the namespace that is open; the sizes of a file are of all. Memory and session files are
    read whole; the others count.
    """
    since = store.outside.clock.now_ms() - days * DAY_MS
    with suppress(Unsupported):
        return await store.backend.maintenance.measure(since)
    return StoreFigures(store.backend.address, (await _read_whole(store.backend, since),))


async def _read_whole(store: SessionStore, since: int) -> NamespaceFigures:
    growth, names = Growth(since), set[str]()
    sizes: list[StreamSize] = []
    for each in await store.maintenance.segment_states():
        with suppress(SessionNotFound):  # removed meanwhile
            sizes.append(await _size(store, each, growth, names))
    facts = await store.info()
    content_bytes = max(0, facts.payload_bytes - sum(each.bytes for each in sizes))
    return figures_of(store.namespace, sizes, growth.days, (len(names), content_bytes))


async def _size(
    store: SessionStore, standing: SegmentState, growth: Growth, names: set[str]
) -> StreamSize:
    stream, after, total = standing.stream, EMPTY, 0
    while after < standing.head:
        share = await store.maintenance.read_segment(
            stream, after=after, upto=standing.head, limit=SOME_COMMITS
        )
        for commit in share.commits:
            size = sum(len(row.entry.body) for row in commit.rows)
            growth.add(commit.at, len(commit.rows), size)
            total += size
            for row in commit.rows:
                names |= {name.decode() for name in NAME_OF_CONTENT.findall(row.entry.body)}
        if not share.commits:
            break
        after = share.commits[-1].last
    state = await store.state(stream)
    return StreamSize(
        stream=stream,
        kind=state.header.kind,
        name=state.info.name,
        is_fork=standing.origin is not None,
        entries=standing.head + 1,
        bytes=total,
    )
