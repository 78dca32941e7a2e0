from __future__ import annotations

from perdure.interop.aliases import PAGE, Traces, foreign_ids, own_entries, traces_of
from perdure.session.ids import StreamId
from perdure.session.info import ForkPoint, StreamHeader
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS
from tests.fakes.sources import empty_store, imported, pi_file
from tests.fakes.streams import say

FORK = StreamId("fork")


async def test_import_history_of_a_fork_begins_with_the_origin() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v2.jsonl"))).session
    state = await store.state(origin)
    header = StreamHeader(FORK, 0, fork=ForkPoint(origin, state.leaf, state.head, "path"))
    await store.commit(Commit(writes=(Write(stream=FORK, create=header),), at=START_MS))
    [own] = await say(store, "mine", stream=FORK)
    traces = await traces_of(store, header, Traces())
    assert traces.mover == own.id
    assert list(traces.streams) == [origin, FORK]
    ids = await foreign_ids(store, traces.streams)
    assert ids["a0000001"] == (await store.tree(FORK))[0].id


async def test_log_is_read_a_page_at_a_time() -> None:
    store = empty_store()
    origin = (await imported(store, pi_file("v2.jsonl"))).session
    await say(store, *["more"] * (2 * PAGE), stream=origin)
    read = [entry async for entry in own_entries(store, origin)]
    assert read == await store.entries(origin)
