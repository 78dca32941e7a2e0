"""Leases acquired and released by a commit, on backends with ``leases_in_commits``."""

from __future__ import annotations

import asyncio

import pytest

from perdure.errors import (
    Erased,
    HeadConflict,
    InvalidEntry,
    InvalidParent,
    LeaseHeld,
    LeaseLost,
    SessionNotFound,
    Unsupported,
)
from perdure.session.entries import NewEntry
from perdure.session.ids import EntryId, StreamId
from perdure.stores.protocol import Commit, CommitResult, Lease, LeaseRequest, Write
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    S,
    append,
    create,
    erasure,
    header,
    replied,
    said,
    texts,
    turn_finished,
    turn_started,
)
from tests.fakes.clock import START_MS, ManualClock

TTL_MS = 30_000
MINE = LeaseRequest("me", TTL_MS)
able = pytest.mark.needs("leases_in_commits")


async def commit(
    store: SessionStore,
    *entries: NewEntry,
    taking: LeaseRequest | None = None,
    lease: Lease | None = None,
    is_releasing: bool = False,
    expected_head: int | None = None,
    key: str | None = None,
) -> CommitResult:
    """Append `entries` to "s" as the current or the new lease owner."""
    write = Write(
        stream=S,
        entries=entries,
        taking=taking,
        lease=lease,
        is_releasing=is_releasing,
        expected_head=expected_head,
    )
    return await store.commit(Commit(writes=(write,), at=START_MS, idempotency_key=key))


async def is_free(store: SessionStore) -> bool:
    """Return whether the lease of "s" is free; acquire the lease if it is."""
    try:
        await store.acquire_lease(S, "whoever asks", TTL_MS)
    except LeaseHeld:
        return False
    return True


async def test_backend_without_leases_in_commits_raises_unsupported(store: SessionStore) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    if store.capabilities.leases_in_commits:
        await commit(store, said("x"), lease=lease, is_releasing=True)
        return
    for wanted in (
        commit(store, said("x"), taking=MINE),
        commit(store, said("x"), lease=lease, is_releasing=True),
    ):
        with pytest.raises(Unsupported, match="leases in commits"):
            await wanted
    assert await store.entries(S) == []


@able
async def test_commit_can_acquire_a_lease_and_start_a_turn(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)

    done = await commit(store, turn_started(), said("go"), taking=MINE)

    assert done.leases == (Lease(S, "me", 1, clock.now_ms() + TTL_MS),)
    state = await store.state(S)
    assert (state.epoch, state.open_turn, state.head) == (1, 0, 1)
    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "you", TTL_MS)
    await append(store, S, replied("done"), lease=done.leases[0])
    assert (await store.maintenance.verify()).is_ok


@able
async def test_commit_that_takes_no_lease_returns_no_lease(store: SessionStore) -> None:
    await create(store)
    assert (await commit(store, said("x"))).leases == ()


@able
async def test_commit_that_takes_a_held_lease_stores_nothing(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "you", TTL_MS)
    before = await store.state(S)

    with pytest.raises(LeaseHeld) as refused:
        await commit(store, said("x"), taking=MINE, expected_head=7)

    assert (refused.value.owner, refused.value.until) == ("you", lease.until)
    assert await store.state(S) == before
    clock.advance(31)
    assert (await commit(store, said("y"), taking=MINE)).leases[0].epoch == 2


@able
async def test_commit_takes_lease_of_dead_owner(store: SessionStore) -> None:
    await create(store)
    old = await store.acquire_lease(S, "you", TTL_MS)

    done = await commit(store, said("x"), taking=LeaseRequest("me", TTL_MS, dead_owner="you"))

    assert done.leases[0].epoch == 2
    with pytest.raises(LeaseLost):
        await append(store, S, said("late"), lease=old)


@able
@pytest.mark.parametrize("is_releasing", [False, True])
async def test_refused_commit_takes_no_lease(store: SessionStore, *, is_releasing: bool) -> None:
    await create(store, S, said("a"))

    with pytest.raises(HeadConflict):
        await commit(store, said("x"), taking=MINE, expected_head=7, is_releasing=is_releasing)
    with pytest.raises(InvalidParent):
        await commit(store, said("x", EntryId("s/9")), taking=MINE, is_releasing=is_releasing)

    assert (await store.state(S)).epoch == 0
    assert await is_free(store)


@able
async def test_commit_with_a_rejected_write_takes_no_lease(
    store: SessionStore,
) -> None:
    await create(store)
    await create(store, "t", said("a"))
    taking = Write(stream=S, entries=(said("x"),), taking=MINE)
    refused = Write(stream=StreamId("t"), entries=(said("y"),), expected_head=7)

    with pytest.raises(HeadConflict):
        await store.commit(Commit(writes=(taking, refused), at=START_MS))
    assert await is_free(store)


@able
async def test_leases_of_several_streams_are_returned_in_order(store: SessionStore) -> None:
    await create(store, "t", said("a"))
    created = Write(stream=S, create=header("s"), entries=(turn_started(),), taking=MINE)
    beside = Write(stream=StreamId("t"), entries=(said("y"),))

    done = await store.commit(Commit(writes=(beside, created), at=START_MS))

    assert [lease.stream for lease in done.leases] == ["s"]
    assert (await store.state(S)).open_turn == 0


@able
async def test_commit_can_finish_a_turn_and_release_the_lease(store: SessionStore) -> None:
    await create(store)
    lease = (await commit(store, turn_started(), said("go"), taking=MINE)).leases[0]

    ended = await commit(store, replied("so"), turn_finished(), lease=lease, is_releasing=True)

    assert [entry.seq for entry in ended.entries[0]] == [2, 3]
    assert (await store.state(S)).epoch == 1
    # The lease is free, but the old epoch is valid until another owner acquires it.
    await append(store, S, said("after"), lease=lease)
    assert await is_free(store)
    with pytest.raises(LeaseLost):
        await append(store, S, said("late"), lease=lease)


@able
async def test_lost_lease_is_not_released(store: SessionStore, clock: ManualClock) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(31)
    await store.acquire_lease(S, "you", TTL_MS)

    with pytest.raises(LeaseLost):
        await commit(store, said("x"), lease=lease, is_releasing=True)
    assert not await is_free(store)


@able
async def test_commit_can_acquire_and_release_lease(store: SessionStore) -> None:
    await create(store)

    done = await commit(store, turn_started(), turn_finished(), taking=MINE, is_releasing=True)

    assert done.leases[0].epoch == 1
    assert await is_free(store)


@able
async def test_lease_of_another_owner_cannot_be_released(store: SessionStore) -> None:
    await create(store)
    await store.acquire_lease(S, "you", TTL_MS)

    with pytest.raises(InvalidEntry, match="no lease that it could give back"):
        await commit(store, said("x"), is_releasing=True)

    assert await store.entries(S) == []
    assert not await is_free(store)


@able
async def test_commit_cannot_acquire_a_lease_with_an_idempotency_key(
    store: SessionStore,
) -> None:
    """A replay of the commit by its key could not return the lease."""
    await create(store)
    with pytest.raises(InvalidEntry, match="idempotency key"):
        await commit(store, said("x"), taking=MINE, key="k")
    lease = await store.acquire_lease(S, "me", TTL_MS)
    with pytest.raises(InvalidEntry, match="has a lease, and is to take one"):
        await commit(store, said("x"), taking=MINE, lease=lease)
    assert await store.entries(S) == []


@able
async def test_only_one_of_concurrent_commits_gets_the_lease(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left)
    wanted = [
        commit(store, said(f"{n}"), taking=LeaseRequest(str(n), TTL_MS))
        for n in range(8)
        for store in (left, right)
    ]

    done = await asyncio.gather(*wanted, return_exceptions=True)

    assert sum(isinstance(each, LeaseHeld) for each in done) == 15
    assert len(texts(await left.entries(S))) == 1
    assert (await right.state(S)).epoch == 1
    assert (await left.maintenance.verify()).is_ok


@able
async def test_commit_cannot_acquire_a_lease_held_by_another_handle(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left)
    await commit(left, turn_started(), turn_finished(), taking=MINE, is_releasing=True)
    await right.acquire_lease(S, "you", TTL_MS)

    with pytest.raises(LeaseHeld) as refused:
        await commit(left, said("x"), taking=MINE)

    assert refused.value.owner == "you"
    assert len(await left.entries(S)) == 2


@able
async def test_lease_of_missing_or_erased_session_is_rejected(store: SessionStore) -> None:
    with pytest.raises(SessionNotFound):
        await commit(store, said("x"), taking=MINE)
    await create(store, S, said("a"))
    await store.retention.erase(erasure(S))
    with pytest.raises((Erased, SessionNotFound)):
        await commit(store, said("x"), taking=MINE)
