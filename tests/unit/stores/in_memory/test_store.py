"""Damaged data in memory, which tests can create only in this backend. See tests/conformance."""

from __future__ import annotations

import msgspec
import pytest

from perdure.errors import CorruptLog
from perdure.session.codec import new_tree
from perdure.session.ids import StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.messages import user
from perdure.stores.in_memory.store import Memory, MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom

S = StreamId("s")


async def filled() -> tuple[MemoryStore, Memory]:
    """Return a store with one stream of three messages and a blob, and its memory."""
    memory = Memory(ManualClock(), SeededRandom())
    store = MemoryStore("n", clock=memory.clock, random=memory.random, memory=memory)
    new = tuple(new_tree(user(text)) for text in "abc")
    write = Write(stream=S, create=StreamHeader(S, START_MS), entries=new)
    await store.commit(Commit(writes=(write,), at=START_MS, blobs=(b"content",)))
    return store, memory


async def test_verify_reports_entry_with_changed_body() -> None:
    store, memory = await filled()
    rows = memory.heaps["n"].streams[S].rows
    changed = msgspec.structs.replace(rows[1].entry, body=new_tree(user("B")).body)
    rows[1] = msgspec.structs.replace(rows[1], entry=changed)

    verification = await store.maintenance.verify()

    assert not verification.is_ok
    assert [(problem.stream, problem.seq) for problem in verification.problems] == [("s", 1)]


async def test_damaged_blob_is_rejected_and_reported_by_verify() -> None:
    store, memory = await filled()
    digest = blob_hash(b"content")
    memory.heaps["n"].blobs[digest] = b"discontent"

    with pytest.raises(CorruptLog):
        await store.blob(digest)

    (problem,) = (await store.maintenance.verify()).problems
    assert digest in problem.problem


async def test_every_entry_body_has_a_different_salt() -> None:
    _, memory = await filled()
    _, again = await filled()

    rows = memory.heaps["n"].streams[S].rows
    assert len({row.salt for row in rows}) == 3
    assert rows == again.heaps["n"].streams[S].rows


async def test_handles_of_other_memory_or_namespace_share_no_data() -> None:
    store, memory = await filled()
    same, other = store.sharing(), store.sharing("other")
    stranger = MemoryStore("n", clock=memory.clock, random=memory.random)

    assert (await same.state(S)).head == 2
    assert await other.sessions() == await stranger.sessions() == []
