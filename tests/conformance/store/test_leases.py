"""Leases: ownership, expiry, and rejection of writes with a lost lease."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import pytest

from perdure.errors import (
    LeaseHeld,
    LeaseLost,
    SessionNotFound,
)
from perdure.session.ids import EntryId, StreamId
from perdure.stores.access.lease_term import LONGEST_LEASE_MS
from perdure.stores.protocol import Lease
from perdure.stores.session_store import SessionStore
from tests.conformance.store.backends import Data
from tests.conformance.store.building import (
    TTL_MS,
    S,
    append,
    create,
    in_a_turn,
    labelled,
    moved,
    replied,
    said,
    texts,
    turn_finished,
    turn_started,
)
from tests.fakes.clock import ManualClock
from tests.fakes.samples import case


async def test_free_lease_is_taken_with_epoch_one(store: SessionStore, clock: ManualClock) -> None:
    await create(store)

    lease = await store.acquire_lease(S, "me", TTL_MS)

    assert lease == Lease(S, "me", 1, clock.now_ms() + TTL_MS)
    assert (await store.state(S)).epoch == 1


async def test_stream_state_contains_the_lease_until_its_release(store: SessionStore) -> None:
    await create(store)
    assert (await store.state(S)).lease is None
    lease = await store.acquire_lease(S, "ana", TTL_MS)
    assert (await store.state(S)).lease == lease
    lease = await store.renew_lease(lease, 2 * TTL_MS)
    assert (await store.state(S)).lease == lease
    await store.release_lease(lease)
    assert (await store.state(S)).lease is None


@pytest.mark.parametrize("owner", ["you", "me"])
async def test_acquire_of_held_lease_fails_for_every_owner(
    store: SessionStore, clock: ManualClock, owner: str
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(29)

    with pytest.raises(LeaseHeld) as refused:
        await store.acquire_lease(S, owner, TTL_MS)

    held = refused.value
    assert (held.stream, held.owner, held.until) == ("s", "me", lease.until)
    assert (await store.state(S)).epoch == 1


async def test_expired_lease_can_be_taken_with_higher_epoch(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(30)

    taken = await store.acquire_lease(S, "you", TTL_MS)

    assert (taken.owner, taken.epoch) == ("you", 2)
    assert (await store.state(S)).epoch == 2


async def test_renewed_lease_keeps_owner_and_epoch(store: SessionStore, clock: ManualClock) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(20)

    renewed = await store.renew_lease(lease, TTL_MS)
    clock.advance(20)

    assert renewed == Lease(S, "me", 1, lease.until + 20_000)
    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "you", TTL_MS)


async def test_expired_lease_is_renewed_unless_taken_over(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(100)

    assert (await store.renew_lease(lease, TTL_MS)).epoch == 1
    clock.advance(100)
    await store.acquire_lease(S, "you", TTL_MS)
    with pytest.raises(LeaseLost) as refused:
        await store.renew_lease(lease, TTL_MS)

    lost = refused.value
    assert (lost.stream, lost.epoch, lost.current) == ("s", 1, 2)


async def test_released_lease_is_free_and_epoch_still_grows(
    store: SessionStore,
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    await store.release_lease(lease)

    assert (await store.state(S)).epoch == 1
    assert (await store.acquire_lease(S, "you", TTL_MS)).epoch == 2


async def test_releasing_a_lease_that_was_taken_over_does_nothing(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    old = await store.acquire_lease(S, "me", TTL_MS)
    clock.advance(31)
    await store.acquire_lease(S, "you", TTL_MS)

    await store.release_lease(old)

    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "me", TTL_MS)


async def test_lease_covers_only_its_stream(store: SessionStore) -> None:
    await create(store)
    await create(store, "t")
    lease = await store.acquire_lease(S, "me", TTL_MS)

    other = await store.acquire_lease(StreamId("t"), "you", TTL_MS)

    assert other.epoch == 1
    with pytest.raises(LeaseLost):
        await append(store, StreamId("t"), said("x"), lease=lease)


async def test_only_one_of_concurrent_owners_gets_the_lease(data: Data) -> None:
    left, right = await data.open(), await data.open()
    await create(left)

    async def race(store: SessionStore, owner: str) -> int:
        with contextlib.suppress(LeaseHeld):
            return (await store.acquire_lease(S, owner, TTL_MS)).epoch
        return 0

    epochs = await asyncio.gather(*(race(s, str(n)) for n in range(8) for s in (left, right)))

    assert sorted(epochs) == [0] * 15 + [1]


async def test_lease_of_dead_owner_can_be_taken_immediately(data: Data) -> None:
    left, right = await data.open(), await data.open()
    old = await in_a_turn(left)

    taken = await right.acquire_lease(S, "you", TTL_MS, dead_owner="me")

    assert (taken.owner, taken.epoch) == ("you", 2)
    assert (await right.state(S)).open_turn == 1
    with pytest.raises(LeaseLost):
        await append(left, S, replied("from the dead"), lease=old)
    # A second owner with the same information finds a live owner's lease.
    with pytest.raises(LeaseHeld) as refused:
        await left.acquire_lease(S, "they", TTL_MS, dead_owner="me")
    assert refused.value.owner == "you"


async def test_lease_stays_held_if_a_different_owner_died(store: SessionStore) -> None:
    await create(store)
    await store.acquire_lease(S, "me", TTL_MS)

    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "you", TTL_MS, dead_owner="m")
    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "me", TTL_MS, dead_owner="")


async def test_lease_calls_on_missing_stream_raise_session_not_found(store: SessionStore) -> None:
    lost = Lease(S, "me", 1, 0)

    for call in (
        store.acquire_lease(S, "me", TTL_MS),
        store.renew_lease(lost, TTL_MS),
        store.release_lease(lost),
        store.put_partial(lost, 0, b""),
    ):
        with pytest.raises(SessionNotFound):
            await call


# ---------------------------------------------------------------- writing under a lease


async def test_every_write_with_lost_lease_is_rejected(
    store: SessionStore, clock: ManualClock
) -> None:
    lease = await in_a_turn(store)
    clock.advance(31)
    await store.acquire_lease(S, "you", TTL_MS)
    before = await store.state(S)

    for new in (said("x"), labelled("x", None), turn_started(), turn_finished(), moved(None)):
        with case(new.kind):
            with pytest.raises(LeaseLost) as refused:
                await append(store, S, new, lease=lease)

            assert (refused.value.epoch, refused.value.current) == (1, 2)
            assert await store.state(S) == before


async def test_lease_epoch_that_was_never_issued_is_rejected(store: SessionStore) -> None:
    await create(store)

    for epoch in (0, 1, -1):
        with case(epoch):
            with pytest.raises(LeaseLost):
                await append(store, S, said("x"), lease=Lease(S, "me", epoch, 2**50))

            assert (await store.state(S)).epoch == 0


async def test_writes_with_an_expired_lease_succeed_until_a_takeover(
    store: SessionStore, clock: ManualClock
) -> None:
    lease = await in_a_turn(store)
    clock.advance(1000)

    await append(store, S, replied("late but first"), turn_finished(EntryId("s/1")), lease=lease)

    assert (await store.state(S)).open_turn is None


async def test_wrong_owner_or_expiry_in_a_lease_is_ignored(
    store: SessionStore,
) -> None:
    await create(store)
    lease = await store.acquire_lease(S, "me", TTL_MS)

    await append(store, S, said("x"), lease=msgspec.structs.replace(lease, until=0, owner="?"))

    assert texts(await store.entries(S)) == ["x"]


async def test_process_with_a_lost_lease_cannot_append(data: Data, clock: ManualClock) -> None:
    sleeper, taker = await data.open(), await data.open()
    old = await in_a_turn(sleeper)
    clock.advance(31)
    new = await taker.acquire_lease(S, "you", TTL_MS)

    with pytest.raises(LeaseLost):
        await append(sleeper, S, replied("too late"), lease=old)
    await append(taker, S, replied("in time"), turn_finished(), lease=new)

    assert texts(await sleeper.entries(S)) == ["before", "do it", "in time"]


async def test_lease_with_implausibly_late_expiry_can_be_taken_over(
    store: SessionStore, clock: ManualClock
) -> None:
    await create(store)
    before = clock.now_ms()
    clock.set_time_of_day(before + 30 * 86_400_000)
    forged = await store.acquire_lease(S, "a wrong clock", TTL_MS)
    clock.set_time_of_day(before)

    lease = await store.acquire_lease(S, "me", 10**15)

    assert (lease.epoch, lease.until) == (forged.epoch + 1, before + LONGEST_LEASE_MS)
    with pytest.raises(LeaseHeld):
        await store.acquire_lease(S, "you", TTL_MS)
    assert (await store.renew_lease(lease, 10**15)).until == lease.until
