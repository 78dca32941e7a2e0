"""Idempotency keys: a repeated commit with the same key has no further effect."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import HeadConflict, IdempotencyMismatch
from perdure.session.entries import Sibling
from perdure.session.ids import StreamId
from perdure.stores.protocol import EMPTY, Commit, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    header,
    labelled,
    replied,
    said,
    texts,
)
from tests.fakes.clock import START_MS
from tests.fakes.samples import case


def commit_of(*writes: Write, key: str = "k", at: int = START_MS) -> Commit:
    return Commit(writes=writes, at=at, idempotency_key=key)


async def test_repeated_key_returns_first_entries_and_appends_nothing(
    store: SessionStore,
) -> None:
    await create(store)
    commit = commit_of(Write(stream=S, entries=(said("a"), labelled("x", Sibling(0)))))

    first = await store.commit(commit)
    again = await store.commit(commit)

    assert (first.is_replay, again.is_replay) == (False, True)
    assert again.entries == first.entries
    assert await store.entries(S) == list(first.entries[0])


async def test_replay_after_more_appends_still_returns_the_first_entries(
    store: SessionStore,
) -> None:
    await create(store, S, said("before"))
    first = await append(store, S, said("a"), key="k")
    await append(store, S, said("b"), said("c"))
    state = await store.state(S)

    again = await append(store, S, said("a"), key="k", at=START_MS + MINUTE_MS)

    assert again == first
    assert await store.state(S) == state


async def test_repeated_commit_ignores_the_expected_head(store: SessionStore) -> None:
    await create(store)
    first = await append(store, S, said("a"), key="k", expected_head=EMPTY, expected_leaf=None)

    assert await append(store, S, said("a"), key="k", expected_head=EMPTY) == first


@pytest.mark.needs("multi_stream_commit")
async def test_repeated_commit_that_creates_sessions_returns_the_first_entries(
    store: SessionStore,
) -> None:
    commit = commit_of(
        Write(stream=S, create=header("s"), entries=(said("a"),)),
        Write(stream=StreamId("t"), create=header("t")),
    )

    first = await store.commit(commit)

    again = await store.commit(commit)
    assert again.entries == first.entries
    assert [len(entries) for entries in again.entries] == [1, 0]
    assert await store.entries(S) == list(first.entries[0])


async def test_idempotency_key_reused_with_different_content_is_rejected(
    store: SessionStore,
) -> None:
    await create(store)
    await create(store, "t")
    await append(store, S, said("a"), key="k")

    for what, other in {
        "another text": Write(stream=S, entries=(said("b"),)),
        "another role": Write(stream=S, entries=(replied("a"),)),
        "more entries": Write(stream=S, entries=(said("a"), said("a"))),
        "another stream": Write(stream=StreamId("t"), entries=(said("a"),)),
    }.items():
        with case(what):
            with pytest.raises(IdempotencyMismatch) as refused:
                await store.commit(commit_of(other))

            assert refused.value.key == "k"
            assert texts(await store.entries(S)) == ["a"]
            assert await store.entries(StreamId("t")) == []


async def test_idempotency_key_of_a_refused_commit_can_be_reused(store: SessionStore) -> None:
    await create(store, S, said("a"))
    with pytest.raises(HeadConflict):
        await append(store, S, said("b"), key="k", expected_head=EMPTY)

    entries = await append(store, S, said("c"), key="k")

    assert texts(entries) == ["c"]


async def test_commits_with_different_idempotency_keys_are_all_appended(
    store: SessionStore,
) -> None:
    await create(store)

    await append(store, S, said("a"), key="k")
    await append(store, S, said("a"), key="K")
    await append(store, S, said("a"), key="k ")
    await append(store, S, said("a"))

    assert texts(await store.entries(S)) == ["a"] * 4


async def test_concurrent_commits_with_one_idempotency_key_append_once(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left)

    results = await asyncio.gather(
        *(append(store, S, said("a"), key="k") for store in (left, right) for _ in range(10))
    )

    assert len(await left.entries(S)) == 1
    assert all(result == results[0] for result in results)


async def test_idempotency_key_applies_only_in_its_namespace(data: Data) -> None:
    ours, theirs = await data.open("ours"), await data.open("theirs")
    for store in (ours, theirs):
        await create(store)

    await append(ours, S, said("a"), key="k")
    await append(theirs, S, said("b"), key="k")

    assert texts(await theirs.entries(S)) == ["b"]


async def test_repeated_commit_uses_no_new_position(store: SessionStore) -> None:
    await create(store)
    await append(store, S, said("a"), key="k")
    position = await store.position()

    await append(store, S, said("a"), key="k")

    assert await store.position() == position
