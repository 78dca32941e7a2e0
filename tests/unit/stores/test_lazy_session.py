"""Sessions that are not in their store yet."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from perdure.errors import InvalidParent, SessionExists, SessionNotFound
from perdure.session.codec import new_side, new_tree
from perdure.session.entries import NewEntry, Sibling
from perdure.session.ids import EntryId, StreamId, blob_hash
from perdure.session.info import StreamHeader
from perdure.session.kinds import BranchSummary
from perdure.session.messages import assistant, user
from perdure.session.notes import Label, LeafMoved
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.lazy_session import LazySession, StoredSession
from perdure.stores.protocol import Commit, CommitResult, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom

S = StreamId("s")
HEADER = StreamHeader(S, START_MS, title="T", metadata={"a": 1})


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock, random=SeededRandom())


@pytest.fixture
async def draft(store: MemoryStore, clock: ManualClock) -> LazySession:
    return await LazySession.create(
        store, Write(stream=HEADER.id, create=HEADER), clock, SeededRandom(1)
    )


async def append(
    draft: LazySession | StoredSession, *entries: NewEntry, at: int = START_MS
) -> CommitResult:
    return await draft.commit(Commit(writes=(Write(stream=S, entries=entries),), at=at))


async def is_stored(store: MemoryStore) -> bool:
    try:
        await store.state(S)
    except SessionNotFound:
        return False
    return True


async def test_lazy_session_is_not_stored_before_its_first_answer(
    draft: LazySession, store: MemoryStore
) -> None:
    await append(draft, new_tree(user("a")), new_side(Label("x"), Sibling(0)))
    assert draft.is_draft
    assert not await is_stored(store)
    await append(draft, new_tree(assistant("b")))
    assert not draft.is_draft
    assert await is_stored(store)


async def test_log_of_a_lazy_session_does_not_change_when_stored(
    draft: LazySession, store: MemoryStore, clock: ManualClock
) -> None:
    await append(draft, new_tree(user("a"), at=7, alias="foreign"), at=START_MS)
    await append(draft, new_side(Label("x"), EntryId("s/0")), at=START_MS + 1)
    await append(draft, new_side(LeafMoved(None)), at=START_MS + 2)
    await append(draft, new_tree(user("other root")), at=START_MS + 3)
    await append(draft, new_side(LeafMoved(EntryId("s/0"))), at=START_MS + 4)
    await append(draft, new_tree(BranchSummary("left", EntryId("s/0"))), at=START_MS + 5)
    before = await draft.log.entries(S)
    state = await draft.log.state(S)
    clock.advance(60)
    await draft.flush()
    assert await store.entries(S) == before
    assert await store.aliases(S) == {"foreign": "s/0"}
    stored = await store.state(S)
    assert stored == msgspec.structs.replace(state, hash=stored.hash)
    assert (await store.maintenance.verify()).is_ok


async def test_lazy_session_is_stored_in_one_commit(draft: LazySession, store: MemoryStore) -> None:
    changes = store.changes()
    await append(draft, new_tree(user("a")))
    await append(draft, new_tree(user("b")))
    committed = await append(draft, new_tree(assistant("c")), new_tree(user("d")))
    assert [entry.id for entry in committed.entries[0]] == ["s/2", "s/3"]
    await anext(changes)
    woken = asyncio.ensure_future(anext(changes))
    await asyncio.sleep(0)
    assert not woken.done()
    woken.cancel()


async def test_first_answer_of_a_lazy_session_can_refer_to_earlier_entries(
    draft: LazySession, store: MemoryStore
) -> None:
    await append(draft, new_tree(user("a")), new_tree(user("b")))
    await append(
        draft,
        new_tree(assistant("c"), EntryId("s/0")),
        new_side(Label("c"), Sibling(0)),
        new_side(Label("b"), EntryId("s/1")),
    )
    entries = await store.entries(S)
    assert [entry.parent_id for entry in entries] == [None, "s/0", "s/0", None, None]
    assert [entry.about for entry in entries] == [None, None, None, "s/2", "s/1"]


async def test_lazy_session_keeps_references_to_entries_of_other_sessions(
    draft: LazySession, store: MemoryStore
) -> None:
    other = StreamHeader(StreamId("other"), START_MS)
    question = new_tree(user("a"))
    await store.commit(
        Commit(writes=(Write(stream=other.id, create=other, entries=(question,)),), at=START_MS)
    )
    label = new_side(Label("x"), EntryId("other/0"))
    await append(draft, question, label)
    await append(draft, new_tree(assistant("b")), label)
    entries = await store.entries(S)
    assert [entry.about for entry in entries] == [None, "other/0", None, "other/0"]


EXPECTATIONS = {
    "head": Write(stream=S, entries=(new_tree(user("b")),), expected_head=0),
    "leaf": Write(stream=S, entries=(new_tree(user("b")),), expected_leaf=EntryId("s/0")),
}


@pytest.mark.parametrize("write", EXPECTATIONS.values(), ids=EXPECTATIONS.keys())
async def test_lazy_session_accepts_a_commit_with_expected_head(
    write: Write, draft: LazySession, store: MemoryStore
) -> None:
    await append(draft, new_tree(user("a")))
    await draft.commit(Commit(writes=(write,), at=START_MS))
    assert not draft.is_draft
    assert len(await store.entries(S)) == 2


async def test_commit_with_an_idempotency_key_stores_a_lazy_session_immediately(
    draft: LazySession, store: MemoryStore
) -> None:
    write = Write(stream=S, entries=(new_tree(user("a")),))
    commit = Commit(writes=(write,), at=START_MS, idempotency_key="k")
    await draft.commit(commit)
    assert (await draft.commit(commit)).is_replay
    assert len(await store.entries(S)) == 1


async def test_commit_to_several_sessions_stores_the_lazy_session(
    draft: LazySession, store: MemoryStore
) -> None:
    other = StreamId("other")
    create = Write(stream=other, create=StreamHeader(other, START_MS))
    write = Write(stream=S, entries=(new_tree(user("a")),))
    await draft.commit(Commit(writes=(write, create), at=START_MS))
    assert (await store.state(S)).head == 0
    assert (await store.state(other)).head == -1


async def test_rejected_append_leaves_a_lazy_session_unchanged(
    draft: LazySession, store: MemoryStore
) -> None:
    await append(draft, new_tree(user("a")))
    with pytest.raises(InvalidParent):
        await append(draft, new_tree(assistant("b"), EntryId("nobody/3")))
    assert draft.is_draft
    assert not await is_stored(store)
    await append(draft, new_tree(assistant("b")))
    assert len(await store.entries(S)) == 2


async def test_lazy_session_with_an_existing_id_is_rejected_and_unchanged(
    draft: LazySession, store: MemoryStore
) -> None:
    await append(draft, new_tree(user("a")))
    await store.commit(Commit(writes=(Write(stream=S, create=HEADER),), at=START_MS))
    with pytest.raises(SessionExists):
        await draft.flush()
    assert draft.is_draft
    assert len(await draft.log.entries(S)) == 1


async def test_lazy_session_is_stored_with_its_blobs(
    draft: LazySession, store: MemoryStore
) -> None:
    write = Write(stream=S, entries=(new_tree(user("a")),))
    await draft.commit(Commit(writes=(write,), at=START_MS, blobs=(b"picture",)))
    await draft.flush()
    assert await store.blob(blob_hash(b"picture")) == b"picture"


async def test_storing_a_lazy_session_twice_changes_nothing(
    draft: LazySession, store: MemoryStore
) -> None:
    await asyncio.gather(draft.flush(), draft.flush())
    await draft.flush()
    assert (await store.state(S)).head == -1


async def test_concurrent_appends_are_all_stored(draft: LazySession, store: MemoryStore) -> None:
    said = [new_tree(user(str(n))) for n in range(5)] + [new_tree(assistant("a"))]
    await asyncio.gather(*(append(draft, new) for new in [*said, *said]))
    assert [entry.seq for entry in await store.entries(S)] == list(range(12))


async def test_cancelled_caller_leaves_no_partially_stored_lazy_session(
    draft: LazySession, store: MemoryStore
) -> None:
    await append(draft, new_tree(user("a")))
    storing = asyncio.ensure_future(draft.flush())
    await asyncio.sleep(0)
    storing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await storing
    await draft.flush()
    assert not draft.is_draft
    assert len(await store.entries(S)) == 1


async def test_changes_of_a_lazy_session_wake_watchers(
    draft: LazySession, store: MemoryStore
) -> None:
    changes = draft.changes(S)
    await append(draft, new_tree(user("a")))
    await anext(changes)
    await draft.flush()
    await anext(changes)
    woken = asyncio.ensure_future(anext(changes))
    await append(StoredSession(store), new_tree(user("by another")))
    await woken
    await store.close()
    assert len([None async for _ in changes]) <= 1


async def test_stored_lazy_session_writes_directly_to_the_store(
    store: MemoryStore,
) -> None:
    await store.commit(Commit(writes=(Write(stream=S, create=HEADER),), at=START_MS))
    stored = StoredSession(store)
    await append(stored, new_tree(user("a")))
    await stored.flush()
    assert not stored.is_draft
    assert (await stored.log.state(S)).head == 0
