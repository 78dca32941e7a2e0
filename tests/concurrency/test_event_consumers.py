"""Consumers that are cut off ten thousand times, and a consumer that stalls."""

from __future__ import annotations

import asyncio
import random
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from perdure.client.clock import Outside
from perdure.client.store import Store
from perdure.events.bus import CAPACITY, LiveBus
from perdure.events.consumer import Follower, Told
from perdure.events.envelope import EventDraft
from perdure.events.projection import events_of
from perdure.events.types import Event, LiveEvent, Snapshot
from perdure.session.codec import new_side
from perdure.session.ids import EntryId, StreamId
from perdure.session.ledger import ModelCalled, ModelFinished, TurnFinished, TurnStarted
from perdure.session.messages import Usage, user
from perdure.session.notes import SideBody
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Lease, Write
from tests.fakes.clock import ManualClock
from tests.fakes.samples import with_larger
from tests.fakes.sources import empty_store

S = StreamId("s")
CONSUMERS = 8
DEADLINE_S = 120.0


class Cut(ConnectionError):
    """Raised when the connection of a consumer is lost."""


class Consumer:
    """A consumer of events over a connection that loses some events and breaks often."""

    def __init__(self, store: Store, seed: int, cuts: int) -> None:
        self._store = store
        self._random = random.Random(seed)
        self._follower = Follower()
        self.cuts = 0
        self._most_cuts = cuts
        self.losses = 0
        self.told: list[tuple[int, int, str]] = []
        self.partial: dict[int, str] = {}

    @property
    def is_done(self) -> bool:
        """Return whether the connection was cut often enough; if so, it is no longer cut."""
        return self.cuts >= self._most_cuts

    async def run(self, last: asyncio.Future[int]) -> None:
        async for event in self._follower.events(self._connect):
            self._apply(event)
            if last.done() and self._follower.resume_after >= last.result():
                return

    async def _connect(self, after: int) -> AsyncIterator[Told]:
        session = await self._store.open(S)
        watch = session.watch(after=after)
        left = self._random.randrange(1, 12)
        try:
            async for event in watch:
                if not self.is_done:
                    if left == 0:
                        self.cuts += 1
                        raise Cut
                    left -= 1
                    if self._random.random() < 0.05:
                        self.losses += 1
                        continue
                yield event
        finally:
            await watch.aclose()

    def _apply(self, event: Told) -> None:
        match event:
            case Event():
                self.told.append((event.seq, event.index, event.type))
            case Snapshot():
                self.partial[event.of] = event.partial.text
            case LiveEvent():
                self.partial[event.of] = self.partial.get(event.of, "") + event.text
            case _:
                raise AssertionError


class Writer:
    """A session during work: turns with streamed answers, and messages of other writers."""

    def __init__(self, store: Store, memory: MemoryStore, lease: Lease) -> None:
        self._store = store
        self._memory = memory
        self._lease = lease
        self.answers: dict[int, str] = {}

    async def write(self, *bodies: SideBody) -> int:
        entries = tuple(new_side(body) for body in bodies)
        write = Write(stream=S, entries=entries, lease=self._lease)
        done = await self._memory.commit(Commit(writes=(write,), at=5))
        return done.entries[0][-1].seq

    async def turn(self, number: int) -> None:
        session = await self._store.open(S)
        await self.write(TurnStarted(number, "a"))
        call = await self.write(ModelCalled(1, "m"))
        self.answers[call] = ""
        for n in range(20):
            draft = EventDraft("agent:token", call, f"{n} ", session_id=S)
            self._store.bus.tell(draft, 5)
            self.answers[call] += f"{n} "
            if n % 5 == 0:
                await session.append(user(f"{number}.{n}"))
            await asyncio.sleep(0)
        entry = new_side(ModelFinished("stop", usage=Usage(1)), (await self._call(call)))
        write = Write(stream=S, entries=(entry,), lease=self._lease)
        await self._memory.commit(Commit(writes=(write,), at=5))
        self._store.bus.close_call(S, call)
        await self.write(TurnFinished("stop"))

    async def _call(self, seq: int) -> EntryId:
        return (await self._memory.entries(S, seq - 1, 1))[0].id


@pytest.mark.parametrize("disconnects", with_larger(1_000, 10_000))
async def test_consumer_state_equals_the_log_despite_many_disconnects(disconnects: int) -> None:
    memory = empty_store()
    clock = ManualClock()
    store = Store(memory, Outside(clock, random.Random(1).randbytes))
    await store.create(id=S)
    lease = await memory.acquire_lease(S, "engine", 60_000_000)
    writer = Writer(store, memory, lease)
    last: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    consumers = [Consumer(store, seed, disconnects // CONSUMERS) for seed in range(CONSUMERS)]
    running = [asyncio.ensure_future(consumer.run(last)) for consumer in consumers]
    number = 0
    while not all(consumer.is_done for consumer in consumers):
        number += 1
        await writer.turn(number)
    end = await (await store.open(S)).append(user("the end"))
    last.set_result(end.seq)
    await (await store.open(S)).append(user("wakes those that have seen the end"))
    log = (await memory.entries(S))[: end.seq + 1]
    truth = [(event.seq, event.index, event.type) for entry in log for event in events_of(entry)]
    await asyncio.wait_for(asyncio.gather(*running), DEADLINE_S)
    assert sum(consumer.cuts for consumer in consumers) >= disconnects
    for consumer in consumers:
        assert consumer.told[: len(truth)] == truth
        assert consumer.losses > 0
        for call, text in consumer.partial.items():
            assert writer.answers[call].startswith(text)


ANSWERS = 8


async def test_stalled_consumer_uses_bounded_memory() -> None:
    bus = LiveBus()
    stalled = bus.subscribe(S)
    tracemalloc.start()
    try:
        sizes: list[int] = []
        for of in range(1, ANSWERS + 1):
            for n in range(2 * CAPACITY):
                bus.tell(EventDraft("agent:token", of, f"word{n % 10} ", session_id=S), n)
            sizes.append(tracemalloc.get_traced_memory()[0])
            if of < ANSWERS:
                bus.close_call(S, of)
    finally:
        tracemalloc.stop()
    assert max(sizes) < 1.5 * min(sizes)  # what one open answer takes, however many came before
    (caught_up,) = stalled.take()
    assert isinstance(caught_up, Snapshot)
    assert (caught_up.of, caught_up.n) == (ANSWERS, 2 * CAPACITY)
