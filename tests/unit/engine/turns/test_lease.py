"""Leases of a process: renewed in time, checked before effects, released at the end."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import msgspec
import pytest

from perdure.engine.turns.lease import Claim, leading, led_by_other, led_here
from perdure.engine.turns.runner import StopRequest
from perdure.errors import HeadConflict, LeaseHeld, LeaseLost
from perdure.session.codec import new_side
from perdure.session.ids import StreamId
from perdure.session.info import StreamHeader
from perdure.session.notes import Label
from perdure.stores.access.cancellation import finished
from perdure.stores.access.lease_term import LONGEST_LEASE_MS
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Capabilities, Commit, CommitResult, Lease, Write
from tests.fakes.chats import until
from tests.fakes.clock import ManualClock, SeededRandom

S = StreamId("s")


async def claim(owner: str = "here", *, made: type[MemoryStore] = MemoryStore) -> Claim:
    clock = ManualClock()
    store = made(clock=clock, random=SeededRandom(1))
    header = StreamHeader(id=S, created_at=0)
    await store.commit(Commit(writes=(Write(stream=S, create=header),), at=0))
    return Claim(store, S, clock, owner, 30_000)


async def test_lease_is_exclusive_and_released_afterwards() -> None:
    mine = await claim()
    async with leading(mine) as leadership:
        assert leadership.lease.owner == "here"
        with pytest.raises(LeaseHeld):
            await mine.store.acquire_lease(S, "there", 1)
    assert (await mine.store.acquire_lease(S, "there", 1)).epoch == leadership.lease.epoch + 1


async def test_lease_is_released_when_the_block_fails() -> None:
    mine = await claim()
    with pytest.raises(ZeroDivisionError):
        async with leading(mine):
            _ = 1 / 0
    await mine.store.acquire_lease(S, "there", 1)


async def test_lease_is_renewed_while_the_block_runs() -> None:
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


async def test_lease_check_renews_an_expiring_lease() -> None:
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


@pytest.mark.parametrize(
    ("until", "is_led"), [(0, False), (1, True), (LONGEST_LEASE_MS, True), (10**15, False)]
)
async def test_lease_with_an_impossible_term_counts_as_expired(until: int, is_led: bool) -> None:
    mine = await claim()
    lease = Lease(S, "there", 1, mine.clock.now_ms() + until)
    state = msgspec.structs.replace(await mine.store.state(S), lease=lease)
    assert (led_by_other(mine, state) is not None) == is_led


class Plain(MemoryStore):
    """A store whose commits do not acquire leases."""

    capabilities = Capabilities(erase=True, search=True)


def note(text: str) -> Commit:
    return Commit(writes=(Write(stream=S, entries=(new_side(Label(text)),)),), at=0)


async def is_free(mine: Claim) -> bool:
    try:
        lease = await mine.store.acquire_lease(S, "there", 1)
    except LeaseHeld:
        return False
    await mine.store.release_lease(lease)
    return True


@pytest.mark.parametrize("made", [MemoryStore, Plain])
async def test_lease_is_held_from_first_to_last_commit(made: type[MemoryStore]) -> None:
    mine = await claim(made=made)
    async with leading(mine, is_begun=False) as leadership:
        assert await is_free(mine)
        await leadership.commit(note("first"))
        assert not await is_free(mine)
        await leadership.commit(note("second"))
        await leadership.commit(note("last"), is_last=True)
        # If the last commit cannot release the lease, the end of the block does.
        assert await is_free(mine) == mine.store.capabilities.leases_in_commits
    assert await is_free(mine)
    assert len(await mine.store.entries(S)) == 3


@pytest.mark.parametrize("made", [MemoryStore, Plain])
async def test_first_commit_takes_over_the_lease_of_a_dead_process(made: type[MemoryStore]) -> None:
    mine = await claim(made=made)
    await mine.store.acquire_lease(S, "the dead", 60_000)
    async with leading(mine, is_begun=False) as leadership:
        with pytest.raises(LeaseHeld):
            await leadership.commit(note("refused"))
    knowing = replace(mine, is_gone="the dead".__eq__)
    async with leading(knowing, is_begun=False) as leadership:
        await leadership.commit(note("first"))
        assert leadership.lease.epoch == 2
    assert await is_free(mine)


async def test_rejected_last_commit_keeps_lease() -> None:
    mine = await claim()
    async with leading(mine) as leadership:
        (write,) = note("late").writes
        late = Commit(writes=(msgspec.structs.replace(write, expected_head=7),), at=0)
        with pytest.raises(HeadConflict):
            await leadership.commit(late, is_last=True)
        assert leadership.lease.owner == "here"
        assert not await is_free(mine)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("made", [MemoryStore, Plain])
async def test_cancelled_lease_request_releases_lease(made: type[MemoryStore], times: int) -> None:
    mine = await claim(made=made)
    store, arrived, leave = mine.store, asyncio.Event(), asyncio.Event()
    name = "commit" if store.capabilities.leases_in_commits else "acquire_lease"
    real = getattr(store, name)

    async def slow(*asked: object, **named: object) -> object:
        done = await real(*asked, **named)
        arrived.set()
        await leave.wait()  # the lease is taken, but this task has not noticed yet
        return done

    setattr(store, name, slow)

    async def begin() -> None:
        async with leading(mine, is_begun=False) as leadership:
            await leadership.commit(note("first"))

    task = asyncio.create_task(begin())
    await arrived.wait()
    for _ in range(times):
        task.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    setattr(store, name, real)
    assert await is_free(mine)


async def test_lease_is_not_renewed_during_last_commit() -> None:
    mine = await claim()
    clock = mine.clock
    assert isinstance(clock, ManualClock)
    real = mine.store.commit

    async def slow(commit: Commit) -> CommitResult:
        clock.advance(10.1)
        for _ in range(3):
            await asyncio.sleep(0)
        return await real(commit)

    async with leading(mine) as leadership:
        first = leadership.lease

        async def is_asleep() -> bool:
            return bool(clock.sleepers)

        await until(is_asleep)
        setattr(mine.store, "commit", slow)  # noqa: B010 - a slow disk is not a state
        await leadership.commit(note("last"), is_last=True)
        assert await is_free(mine)
    assert first.epoch == 1


async def test_lease_is_released_after_the_renewal_that_is_under_way() -> None:
    mine = await claim()
    clock = mine.clock
    assert isinstance(clock, ManualClock)
    real, begun, ended = mine.store.renew_lease, asyncio.Event(), asyncio.Event()

    async def write(lease: Lease, ttl_ms: int) -> Lease:
        begun.set()
        for _ in range(5):
            await asyncio.sleep(0)
        renewed = await real(lease, ttl_ms)
        ended.set()
        return renewed

    async def slow(lease: Lease, ttl_ms: int) -> Lease:
        return await finished(write(lease, ttl_ms))  # a store ends what it has begun

    setattr(mine.store, "renew_lease", slow)  # noqa: B010 - a slow disk is not a state
    async with leading(mine):

        async def is_asleep() -> bool:
            return bool(clock.sleepers)

        await until(is_asleep)
        clock.advance(10.1)
        await begun.wait()
    await ended.wait()
    assert await is_free(mine)


async def test_same_session_in_two_stores_has_separate_leases() -> None:
    mine, other = await claim(), await claim()
    async with leading(mine, stopping=StopRequest()):
        led = led_here(mine)
        assert led is not None
        assert led.can_stop(mine)
        assert not led.can_stop(other)
        async with leading(other, stopping=StopRequest()):
            assert led_here(mine) is led
            assert led_here(other) is not led
    assert led_here(mine) is None
