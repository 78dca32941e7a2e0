"""Calls cut or cancelled anywhere: a returned result is stored; a retry after an error is safe.

A proxy breaks the connection at each message of each call, in both directions and in three ways.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import cycle, product
from typing import get_args

import pytest

from perdure.client.clock import system_random
from perdure.errors import StoreUnavailable
from perdure.session.ids import StreamId
from perdure.stores.postgres.database import Statement, run_statements
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.protocol import Commit, Lease, Write
from tests.conformance.store.building import (
    TTL_MS,
    S,
    append,
    create,
    erasure,
    said,
    texts,
    turn_started,
)
from tests.fakes.postgres import PostgresServer
from tests.fakes.postgres_wire import Break, Cut, Proxy, Side, proxied
from tests.fakes.samples import with_larger

PATIENCE_S = 60.0
IDLE_MS = 10_000
LAST = 3
"""The number of last messages of a long call at which each cut is tried: its commit is there."""

IS_ALL = pytest.mark.parametrize(
    "is_all", with_larger(small=False, large=True), ids=["sample", "all"]
)
"""Whether a connection is cut at more messages, and at each one in each way."""

STEPS = 12
"""Maximum number of event loop steps that a call runs before it is cancelled."""

BUSY_S = 0.01
"""If the event loop was busy longer than this, psycopg runs other tasks within pipeline steps."""


async def quiet(store: PostgresStore) -> None:
    """Wait until `store` has sent the notifications of its commits."""
    watcher = store.handle.watcher
    while (telling := watcher._telling) is not None:  # pyright: ignore[reportPrivateUsage] - it shows that
        await asyncio.wait((telling,))


class Cuts:
    """Two handles: `far` goes through the proxy, which cuts the calls of `far`; `near` does not."""

    def __init__(self, proxy: Proxy, far: PostgresStore, near: PostgresStore) -> None:
        self.proxy = proxy
        self.far = far
        self.near = near

    async def each(
        self,
        prepare: Callable[[StreamId], Awaitable[Lease | None]],
        call: Callable[[StreamId, Lease | None], Awaitable[object]],
        check: Callable[[StreamId, Lease | None, object], Awaitable[None]],
        step: int = 1,
        *,
        is_all: bool,
    ) -> None:
        """Cut `call` at every `step`th message; pass its result or None to `check`.

        With `is_all`, each cut is made in each way. Otherwise the ways of the cuts alternate.
        """
        ways = get_args(Break)
        for hows, side in product([(how,) for how in ways] if is_all else [ways], get_args(Side)):
            how, after = cycle(hows), 0
            while True:
                cut = Cut(side, after, next(how))
                if (lacking := await self._one(cut, prepare, call, check)) is not None:
                    break
                after += step
            total = after - lacking
            assert total > LAST
            for last in range(total - LAST, total) if step > 1 else ():
                await self._one(Cut(side, last, next(how)), prepare, call, check)

    async def _one(
        self,
        cut: Cut,
        prepare: Callable[[StreamId], Awaitable[Lease | None]],
        call: Callable[[StreamId, Lease | None], Awaitable[object]],
        check: Callable[[StreamId, Lease | None, object], Awaitable[None]],
    ) -> int | None:
        await self.far.handle.db.limit_idle(IDLE_MS)  # on a new connection
        stream = StreamId(f"{cut.how}-{cut.side}-{cut.after}-{system_random(4).hex()}")
        lease = await prepare(stream)
        await quiet(self.far)
        self.proxy.cut(cut)
        result: object = None
        with suppress(StoreUnavailable):
            result = await asyncio.wait_for(call(stream, lease), PATIENCE_S)
        lacking = self.proxy.end_cut()
        await quiet(self.far)
        assert lacking is None or result is not None
        await check(stream, lease, result)
        return lacking

    async def leased(self, stream: StreamId) -> Lease:
        """Create a stream and acquire its lease."""
        await create(self.far, stream)
        return await self.far.acquire_lease(stream, "me", TTL_MS)

    async def cached(self, stream: StreamId) -> None:
        """Create a stream whose state the handle `far` caches."""
        await create(self.far, stream)
        await append(self.far, stream, said("a"))

    async def uncached(self, stream: StreamId) -> None:
        """Create a stream that the handle `far` has not read yet."""
        await create(self.near, stream, said("a"))


@pytest.fixture
async def cuts(postgres: PostgresServer, address: str, store: PostgresStore) -> AsyncIterator[Cuts]:
    if not postgres.is_ours:
        pytest.skip("the named server may have no socket here")
    async with proxied(address) as (proxy, through):
        far = await PostgresStore.open(through, random=system_random, max_connections=1)
        yield Cuts(proxy, far, store)
        await far.close()


@pytest.fixture
async def single(address: str) -> AsyncIterator[PostgresStore]:
    """A handle with one connection."""
    opened = await PostgresStore.open(address, random=system_random, max_connections=1)
    yield opened
    await opened.close()


async def check_append(
    cuts: Cuts, prepare: Callable[[StreamId], Awaitable[None]], step: int, *, is_all: bool
) -> None:
    """Cut an append at every `step`th message."""

    async def call(stream: StreamId, _: Lease | None) -> object:
        return await append(cuts.far, stream, said("b"), key=stream)

    async def check(stream: StreamId, lease: Lease | None, result: object) -> None:
        assert result is None or texts(await cuts.near.entries(stream)) == ["a", "b"]
        await call(stream, lease)
        assert texts(await cuts.near.entries(stream)) == ["a", "b"]

    await cuts.each(prepare, call, check, step, is_all=is_all)


@pytest.mark.all_only
@pytest.mark.full_only
async def test_append_to_a_cached_stream_with_a_cut_connection_is_stored_once(cuts: Cuts) -> None:
    await check_append(cuts, cuts.cached, 1, is_all=True)


@pytest.mark.full_only
@IS_ALL
async def test_append_whose_connection_is_cut_at_any_step_is_stored_once(
    cuts: Cuts, is_all: bool
) -> None:
    await check_append(cuts, cuts.uncached, 5 if is_all else 20, is_all=is_all)


@pytest.mark.full_only
@IS_ALL
async def test_commit_to_two_streams_with_a_cut_connection_is_stored_once(
    cuts: Cuts, is_all: bool
) -> None:
    await create(cuts.near, S)

    async def call(stream: StreamId, _: Lease | None) -> object:
        writes = tuple(Write(stream=each, entries=(said(stream),)) for each in (S, stream))
        return await cuts.far.commit(Commit(writes=writes, at=1, idempotency_key=stream))

    async def stored(stream: StreamId) -> list[int]:
        return [texts(await cuts.near.entries(each)).count(stream) for each in (S, stream)]

    async def check(stream: StreamId, lease: Lease | None, result: object) -> None:
        assert await stored(stream) in ([[1, 1]] if result else [[0, 0], [1, 1]])
        await call(stream, lease)
        assert await stored(stream) == [1, 1]

    await cuts.each(cuts.uncached, call, check, 5 if is_all else 20, is_all=is_all)


@pytest.mark.full_only
@IS_ALL
async def test_turn_entries_with_a_cut_connection_are_stored_once(cuts: Cuts, is_all: bool) -> None:
    async def call(stream: StreamId, lease: Lease | None) -> object:
        return await append(cuts.far, stream, turn_started(), said("b"), lease=lease, key=stream)

    async def check(stream: StreamId, lease: Lease | None, result: object) -> None:
        assert len(await cuts.near.entries(stream)) in ([2] if result else [0, 2])
        await call(stream, lease)
        assert len(await cuts.near.entries(stream)) == 2
        assert (await cuts.near.state(stream)).open_turn == 0

    await cuts.each(cuts.leased, call, check, is_all=is_all)


@pytest.mark.full_only
@IS_ALL
async def test_lease_acquired_despite_a_cut_connection_is_valid(cuts: Cuts, is_all: bool) -> None:
    async def call(stream: StreamId, _: Lease | None) -> object:
        return await cuts.far.acquire_lease(stream, stream, TTL_MS)

    async def check(stream: StreamId, _: Lease | None, result: object) -> None:
        if isinstance(result, Lease):
            assert (await cuts.near.renew_lease(result, TTL_MS)).epoch == result.epoch
        again = await cuts.near.acquire_lease(stream, "me", TTL_MS, dead_owner=stream)
        assert again.epoch in ([2] if result else [1, 2])

    await cuts.each(cuts.cached, call, check, is_all=is_all)


@pytest.mark.full_only
@IS_ALL
async def test_lease_renewed_despite_a_cut_connection_is_extended(cuts: Cuts, is_all: bool) -> None:
    async def call(_: StreamId, lease: Lease | None) -> object:
        assert lease is not None
        return await cuts.far.renew_lease(lease, 2 * TTL_MS)

    async def check(stream: StreamId, lease: Lease | None, result: object) -> None:
        assert lease is not None
        async with cuts.near.handle.db.connection() as db:
            question = "SELECT until FROM perdure.stream WHERE namespace = %s AND id = %s"
            namespace = cuts.near.handle.db.namespace
            asked = Statement(question, (namespace, stream))
            (((until,),),) = await run_statements(db, namespace, [asked])
        if isinstance(result, Lease):
            assert until == result.until
        assert (await cuts.near.renew_lease(lease, TTL_MS)).epoch == lease.epoch

    await cuts.each(cuts.leased, call, check, is_all=is_all)


@pytest.mark.full_only
@IS_ALL
async def test_erasure_with_a_cut_connection_is_complete_or_has_no_effect(
    cuts: Cuts, is_all: bool
) -> None:
    async def call(stream: StreamId, _: Lease | None) -> object:
        return await cuts.far.retention.erase(erasure(stream, id=stream))

    async def check(stream: StreamId, lease: Lease | None, result: object) -> None:
        said_a, *certificate = await cuts.near.entries(stream)
        assert said_a.is_erased == bool(certificate)
        assert said_a.is_erased or result is None
        await call(stream, lease)
        said_a, *certificate = await cuts.near.entries(stream)
        assert said_a.is_erased
        assert len(certificate) == 1

    await cuts.each(cuts.cached, call, check, 61 if is_all else 244, is_all=is_all)


async def test_commit_is_stored_after_an_earlier_call_was_cancelled(store: PostgresStore) -> None:
    await create(store, S, said("a"))
    stored, cancelled = ["a"], 0
    for steps in range(STEPS):
        await quiet(store)
        time.sleep(BUSY_S)  # noqa: ASYNC251 - the loop must be busy
        reading = asyncio.ensure_future(store.entries(S))
        for _ in range(steps):
            await asyncio.sleep(0)
        if reading.cancel():
            cancelled += 1
            with pytest.raises(asyncio.CancelledError):
                await reading
        await append(store, S, said(f"{steps}"))
        stored.append(f"{steps}")
        assert texts(await store.entries(S)) == stored
    assert cancelled > 1  # how many steps the call takes depends on when the server answers


async def cancelled_at_lock(store: PostgresStore, call: asyncio.Task[None]) -> None:
    """Cancel `call` at a moment when it waits for the lock of the pool."""
    pool = store.handle.db._pool  # pyright: ignore[reportPrivateUsage] - nothing else shows it
    assert pool is not None
    async with pool._lock:  # pyright: ignore[reportPrivateUsage] - else the moment is too short
        for _ in range(100):
            await asyncio.sleep(0)
        assert not call.done()
        call.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_cancelled_call_makes_its_connection_available_again(
    single: PostgresStore,
) -> None:
    lent, leave = asyncio.Event(), asyncio.Event()

    async def borrow() -> None:
        async with single.handle.db.connection():
            lent.set()
            await leave.wait()

    await create(single, S, said("a"))
    borrowing = asyncio.create_task(borrow())
    await lent.wait()
    reading = asyncio.create_task(single.entries(S))
    for _ in range(100):
        await asyncio.sleep(0)
    leave.set()
    await cancelled_at_lock(single, borrowing)
    assert texts(await reading) == ["a"]


async def test_connection_is_released_if_a_change_of_the_idle_limit_is_cancelled(
    single: PostgresStore,
) -> None:
    await create(single, S, said("a"))
    await quiet(single)
    await single.entries(S)
    await cancelled_at_lock(single, asyncio.create_task(single.handle.db.limit_idle(IDLE_MS)))
    assert texts(await single.entries(S)) == ["a"]
