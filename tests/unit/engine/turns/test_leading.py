"""Leases in a process's hands: renewed in time, checked before effects, given back."""

from __future__ import annotations

import pytest

from perdure.engine.turns.leading import Claim, leading
from perdure.errors import LeaseHeld, LeaseLost
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.stores.in_memory import MemoryStore
from perdure.stores.protocol import Commit, Write
from tests.fakes.chats import until
from tests.fakes.clock import ManualClock, SeededRandom

S = StreamId("s")


async def claim(owner: str = "here") -> Claim:
    clock = ManualClock()
    store = MemoryStore(clock=clock, random=SeededRandom(1))
    header = StreamHeader(id=S, created_at=0)
    await store.commit(Commit(writes=(Write(stream=S, create=header),), at=0))
    return Claim(store, S, clock, owner, 30_000)


async def test_a_session_is_led_by_one_and_free_afterwards() -> None:
    mine = await claim()
    async with leading(mine) as leadership:
        assert leadership.lease.owner == "here"
        with pytest.raises(LeaseHeld):
            await mine.store.acquire_lease(S, "there", 1)
    assert (await mine.store.acquire_lease(S, "there", 1)).epoch == leadership.lease.epoch + 1


async def test_the_lease_is_given_back_when_the_block_fails() -> None:
    mine = await claim()
    with pytest.raises(ZeroDivisionError):
        async with leading(mine):
            _ = 1 / 0
    await mine.store.acquire_lease(S, "there", 1)


async def test_the_lease_is_renewed_while_the_block_runs() -> None:
    mine = await claim()
    clock = mine.clock
    assert isinstance(clock, ManualClock)
    async with leading(mine) as leadership:
        until_first = leadership.lease.until

        async def is_asleep() -> bool:
            return bool(clock.sleepers)

        async def is_renewed() -> bool:
            return leadership.lease.until > until_first

        await until(is_asleep)
        clock.advance(10.1)
        await until(is_renewed)


async def test_ensure_renews_a_lease_that_runs_out_soon_and_finds_one_that_is_lost() -> None:
    mine = await claim()
    clock = mine.clock
    assert isinstance(clock, ManualClock)
    async with leading(mine) as leadership:
        before = leadership.lease
        await leadership.ensure()
        assert leadership.lease == before
        clock.set_time_of_day(clock.now_ms() + 20_000)
        await leadership.ensure()
        assert leadership.lease.until > before.until
        clock.set_time_of_day(clock.now_ms() + 60_000)
        await mine.store.acquire_lease(S, "there", 60_000)
        with pytest.raises(LeaseLost):
            await leadership.ensure()
