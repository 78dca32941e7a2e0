"""Commits take one round trip while no other process writes; otherwise they take locks."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import HeadConflict, LeaseLost
from perdure.session.codec import new_tree
from perdure.session.ids import EntryId
from perdure.session.kinds import ModelChange
from perdure.stores.postgres import append as appends
from perdure.stores.postgres.append import Appender, Request
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import CommitResult
from tests.conformance.store.building import (
    MINUTE_MS,
    S,
    append,
    create,
    moved,
    said,
    texts,
    turn_finished,
    turn_started,
)
from tests.integration.postgres.conftest import Open


@pytest.fixture
def locked(monkeypatch: pytest.MonkeyPatch) -> list[Request]:
    """Return a list to which each append request that takes locks is added."""
    requests: list[Request] = []
    real = Appender._locking  # pyright: ignore[reportPrivateUsage] - it is what is counted

    async def counting(appender: Appender, request: Request, sent: asyncio.Event) -> CommitResult:
        requests.append(request)
        return await real(appender, request, sent)

    monkeypatch.setattr(appends.Appender, "_locking", counting)
    return requests


async def test_commit_of_the_only_writer_needs_no_row_lock(
    store: PostgresStore, locked: list[Request]
) -> None:
    await create(store)
    locked.clear()

    await append(store, S, said("a"), key="k")
    await append(store, S, new_tree(ModelChange("m:1")), said("b", EntryId("s/0")))
    await append(store, S, moved(EntryId("s/0")), said("c", alias="x"))
    for number in range(20):
        await append(store, S, said(str(number)), expected_head=4 + number)

    assert locked == []
    assert (await store.maintenance.verify()).problems == ()


async def test_lease_of_the_only_writer_needs_no_row_lock(
    store: PostgresStore, locked: list[Request]
) -> None:
    await create(store)
    await append(store, S, said("a"))
    locked.clear()

    for number in range(1, 4):
        lease = await store.acquire_lease(S, "me", MINUTE_MS)
        await append(store, S, turn_started(number), said("b"), lease=lease)
        await append(store, S, turn_finished(), lease=lease)
        await store.release_lease(lease)

    assert locked == []
    assert (await store.maintenance.verify()).problems == ()


async def test_cached_lease_is_rejected_after_takeover(
    open_store: Open,
) -> None:
    here, there = await open_store(), await open_store()
    await create(here)
    mine = await here.acquire_lease(S, "me", MINUTE_MS)
    await append(here, S, said("a"), lease=mine)
    theirs = await there.acquire_lease(S, "they", MINUTE_MS, dead_owner="me")

    with pytest.raises(LeaseLost):
        await append(here, S, said("b"), lease=mine)

    await append(there, S, said("c"), lease=theirs)
    assert texts(await here.entries(S)) == ["a", "c"]


async def test_commit_locks_the_row_while_several_writers_append(
    open_store: Open, locked: list[Request]
) -> None:
    here, there = await open_store(), await open_store()
    await create(here)
    for number in range(4):
        await append(here, S, said(f"here {number}"))
        await append(there, S, said(f"there {number}"))
    locked.clear()

    for number in range(5):
        await append(here, S, said(str(number)))

    assert len(locked) == 2  # it finds that others wrote, then that they no longer do
    assert texts(await there.entries(S))[-5:] == ["0", "1", "2", "3", "4"]
    assert (await here.maintenance.verify()).problems == ()


async def test_repeated_idempotency_key_returns_the_first_commit(
    store: PostgresStore, locked: list[Request]
) -> None:
    await create(store)
    first = await append(store, S, said("a"), key="k")
    await append(store, S, said("b"))
    locked.clear()

    assert await append(store, S, said("a"), key="k") == first
    assert len(locked) == 1
    assert texts(await store.entries(S)) == ["a", "b"]


async def test_outdated_stream_cache_does_not_cause_a_head_conflict(open_store: Open) -> None:
    here, there = await open_store(), await open_store()
    await create(here, S, said("a"))
    await append(there, S, said("b"))

    # `here` has the head cached as 0; for the real head the next line is right.
    await append(here, S, said("c"), expected_head=1)
    with pytest.raises(HeadConflict):
        await append(here, S, said("d"), expected_head=0)
    assert texts(await here.entries(S)) == ["a", "b", "c"]
