"""Commits are atomic, and fail if an expectation does not hold."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import (
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    LeafConflict,
    LeaseLost,
    SessionNotFound,
)
from perdure.session.codec import new_side
from perdure.session.entries import Sibling
from perdure.session.ids import EntryId, StreamId
from perdure.session.notes import CompactionUndone
from perdure.stores.protocol import EMPTY, Commit, Lease, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    S,
    append,
    append_one,
    create,
    header,
    ids,
    labelled,
    moved,
    said,
    texts,
    turn_started,
)
from tests.fakes.clock import START_MS
from tests.fakes.samples import ALL_ONLY, case

# ---------------------------------------------------------------- expectations


async def test_commit_with_a_matching_expected_head_is_appended(
    store: SessionStore,
) -> None:
    await create(store)

    await append(store, S, said("a"), expected_head=EMPTY)
    await append(store, S, said("b"), expected_head=0)

    assert texts(await store.entries(S)) == ["a", "b"]


async def test_error_for_a_wrong_expected_head_contains_the_current_head(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), said("b"))

    with pytest.raises(HeadConflict) as refused:
        await append(store, S, said("c"), expected_head=0)

    conflict = refused.value
    assert (conflict.stream, conflict.expected, conflict.actual) == ("s", 0, 1)
    assert (await store.state(S)).head == 1


async def test_only_one_of_concurrent_writers_with_same_expected_head_succeeds(
    store: SessionStore,
) -> None:
    await create(store)

    async def race(writer: int) -> bool:
        try:
            await append(store, S, said(str(writer)), expected_head=EMPTY)
        except HeadConflict:
            return False
        return True

    assert sum(await asyncio.gather(*(race(writer) for writer in range(20)))) == 1
    assert (await store.state(S)).head == 0


async def test_expected_leaf_still_matches_after_a_side_entry(
    store: SessionStore,
) -> None:
    await create(store, S, said("a"), labelled("x", Sibling(0)))

    await append(store, S, said("b"), expected_leaf=EntryId("s/0"))

    with pytest.raises(LeafConflict) as refused:
        await append(store, S, said("c"), expected_leaf=EntryId("s/0"))
    assert (refused.value.expected, refused.value.actual) == ("s/0", "s/2")


async def test_expected_leaf_none_is_rejected_if_a_leaf_exists(store: SessionStore) -> None:
    await create(store)
    await append(store, S, said("a"), expected_leaf=None)

    with pytest.raises(LeafConflict) as refused:
        await append(store, S, said("b"), expected_leaf=None)
    assert (refused.value.expected, refused.value.actual) == (None, "s/0")

    await append(store, S, moved(None))
    await append(store, S, said("second root"), expected_leaf=None)
    assert (await store.state(S)).leaf == "s/2"


async def test_empty_write_with_a_wrong_expected_head_is_rejected(store: SessionStore) -> None:
    await create(store, S, said("a"))
    before = await store.state(S)

    assert await append(store, S, expected_head=0) == []
    assert await append(store, S, expected_leaf=EntryId("s/0")) == []

    assert await store.state(S) == before
    with pytest.raises(HeadConflict):
        await append(store, S, expected_head=5)


async def test_write_without_entries_or_expectations_is_rejected(store: SessionStore) -> None:
    await create(store)

    with pytest.raises(InvalidEntry):
        await append(store, S)
    with pytest.raises(InvalidEntry):
        await store.commit(Commit(writes=(), at=START_MS))


# ---------------------------------------------------------------- several streams at once


@pytest.mark.needs("multi_stream_commit")
async def test_multi_stream_commit_returns_entries_in_write_order(
    store: SessionStore,
) -> None:
    await create(store, "b", said("old"))
    writes = (
        Write(stream=StreamId("c"), create=header("c"), entries=(said("in c"),)),
        Write(stream=StreamId("b"), entries=(said("in b"), said("more in b"))),
        Write(stream=StreamId("a"), create=header("a")),
    )

    committed = await store.commit(Commit(writes=writes, at=START_MS))

    assert [ids(list(entries)) for entries in committed.entries] == [["c/0"], ["b/1", "b/2"], []]
    assert not committed.is_replay
    assert (await store.state(StreamId("a"))).head == EMPTY


_LOST = Lease(S, "nobody", 3, START_MS)

FAILING = {
    "an unknown stream": (Write(stream=StreamId("none"), entries=(said(),)), SessionNotFound),
    "a moved head": (Write(stream=S, entries=(said(),), expected_head=7), HeadConflict),
    "another leaf": (Write(stream=S, entries=(said(),), expected_leaf=None), LeafConflict),
    "a lost lease": (Write(stream=S, entries=(said(),), lease=_LOST), LeaseLost),
    "a wrong parent": (Write(stream=S, entries=(said("x", EntryId("s/7")),)), InvalidParent),
    "an invalid entry": (Write(stream=S, entries=(said(), turn_started())), InvalidEntry),
    "nothing to do": (Write(stream=S), InvalidEntry),
}


@pytest.mark.needs("multi_stream_commit")
@pytest.mark.parametrize("is_first", [False, pytest.param(True, marks=ALL_ONLY)])
async def test_failed_write_rolls_back_other_writes(store: SessionStore, is_first: bool) -> None:
    await create(store, S, said("a", alias="foreign-a"))
    await create(store, "other", said("o"))
    states = [await store.state(S), await store.state(StreamId("other"))]
    fine = (
        Write(stream=StreamId("new"), create=header("new"), entries=(said("never"),)),
        Write(
            stream=StreamId("other"),
            entries=(said("never", alias="foreign-never"), labelled("never", Sibling(0))),
        ),
    )

    for key, (failing, error) in FAILING.items():
        writes = (failing, *fine) if is_first else (*fine, failing)
        with case(key):
            with pytest.raises(error):
                await store.commit(
                    Commit(writes=writes, at=START_MS, idempotency_key=key, blobs=(b"never",))
                )

            assert [await store.state(S), await store.state(StreamId("other"))] == states
            assert await store.aliases(StreamId("other")) == {}
            assert await store.notes(StreamId("other"), ["label"]) == []
            assert [info.id for info in await store.sessions()] == ["s", "other"]
            assert await store.position() == (await store.feed(0))[-1].position
            assert len(await store.feed(0)) == 2
            with pytest.raises(SessionNotFound):
                await store.state(StreamId("new"))
    # The keys were not stored either: they are still free.
    for key in FAILING:
        with case(key):
            await append(store, S, said("b"), key=key)
    await append(store, StreamId("other"), said("next"))
    assert (await store.maintenance.verify()).problems == ()


async def test_commit_rejects_two_writes_to_one_stream(store: SessionStore) -> None:
    await create(store)
    write = Write(stream=S, entries=(said(),))

    with pytest.raises(InvalidEntry):
        await store.commit(Commit(writes=(write, write), at=START_MS))

    assert await store.entries(S) == []


async def test_entry_can_refer_to_an_entry_of_another_stream(store: SessionStore) -> None:
    await create(store, "other", said("o"))
    await create(store)

    entry = await append_one(store, S, new_side(CompactionUndone(), EntryId("other/0")))

    assert entry.about == "other/0"


async def test_commit_is_visible_to_other_handles_immediately(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left, S, said("a"))

    await append(right, S, said("b"))
    await append(left, S, said("c"))

    assert texts(await left.entries(S)) == texts(await right.entries(S)) == ["a", "b", "c"]
    with pytest.raises(HeadConflict):
        await append(left, S, said("d"), expected_head=1)


async def test_appends_of_many_concurrent_handles_are_all_stored(data: Data) -> None:
    stores = [await data.open() for _ in range(4)]
    await create(stores[0])

    async def write(writer: int) -> None:
        for number in range(25):
            await append(stores[writer], S, said(f"{writer}:{number}"))

    await asyncio.gather(*(write(writer) for writer in range(4)))

    log = await stores[0].entries(S)
    assert [entry.seq for entry in log] == list(range(100))
    assert [entry.parent_id for entry in log] == [None, *ids(log)[:-1]]
    assert (await stores[1].maintenance.verify()).problems == ()
