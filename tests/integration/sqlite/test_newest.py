"""The state of a session and its newest entries, in one call."""

from __future__ import annotations

import pytest

from perdure.errors import EntryNotFound, SessionNotFound
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.session.notes import LeafMoved
from perdure.stores.protocol import Commit, SnapshotReader, Write
from perdure.stores.sqlite.store import SqliteStore
from tests.fakes.streams import S, append, create, say

FORK = StreamId("fork")


async def test_one_read_of_state_and_branch_equals_two_separate_reads(
    store: SqliteStore,
) -> None:
    assert isinstance(store, SnapshotReader)
    await create(store)
    assert await store.newest(S) == (await store.state(S), [])
    for number in range(5):
        await say(store, str(number))
    point = ForkPoint(S, (await store.entries(S))[2].id, 4, "path")
    write = Write(stream=FORK, create=StreamHeader(FORK, 1, fork=point))
    await store.commit(Commit(writes=(write,), at=1))
    await say(store, "in the fork", stream=FORK)

    for stream in (S, FORK):
        for limit, kind in ((None, None), (2, None), (0, None), (3, "message"), (3, "no kind")):
            state = await store.state(stream)
            branch = await store.branch(stream, state.leaf, limit=limit, kind=kind)
            assert await store.newest(stream, limit=limit, kind=kind) == (state, branch)


async def test_reading_the_newest_entries_before_the_root_returns_no_entries(
    store: SqliteStore,
) -> None:
    await create(store)
    await say(store, "left")
    await append(store, new_side(LeafMoved(None)))

    state, entries = await store.newest(S)

    assert (state.leaf, entries) == (None, [])


async def test_reading_the_newest_entries_of_a_missing_session_fails(
    store: SqliteStore,
) -> None:
    with pytest.raises(SessionNotFound):
        await store.newest(StreamId("nobody"))


async def test_entry_is_resolved_by_id_or_alias(store: SqliteStore) -> None:
    await create(store)
    await say(store, "first")
    first = (await store.entries(S))[0]

    assert await store.resolved(S, first.id) == first
    with pytest.raises(EntryNotFound):
        await store.resolved(S, "nothing")
    with pytest.raises(SessionNotFound):
        await store.resolved(StreamId("nobody"), first.id)
