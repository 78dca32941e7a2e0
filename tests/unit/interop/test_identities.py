from __future__ import annotations

from perdure.interop.identities import foreign_ids, seen_entries
from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS
from tests.fakes.sources import empty_store, imported, pi_file
from tests.fakes.streams import say

FORK = StreamId("fork")


async def test_a_fork_sees_what_it_shares_before_what_is_its_own() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v2.jsonl"))).session
    state = await store.state(origin)
    header = StreamHeader(FORK, 0, fork=ForkPoint(origin, state.leaf, state.head, "path"))
    await store.commit(Commit(writes=(Write(stream=FORK, create=header),), at=START_MS))
    [own] = await say(store, "mine", stream=FORK)
    seen = await seen_entries(store, FORK)
    assert seen[-1] == own
    assert [entry.stream for entry in seen[:-1]] == [origin] * (len(seen) - 1)
    ids = await foreign_ids(store, seen)
    assert ids["a0000001"] == seen[0].id
