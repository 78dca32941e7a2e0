"""A watch yields each event of a log once, and live events at their positions."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from perdure.client import watch as watches
from perdure.client.clock import Outside
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.client.watch import Watch
from perdure.errors import WrongArgument
from perdure.events.types import AnyEvent, Event, LiveEvent, Snapshot
from perdure.session.codec import new_side
from perdure.session.entries import Entry, NewEntry
from perdure.session.ids import StreamId
from perdure.session.ledger import ModelCalled, ModelFinished, TurnFinished, TurnStarted
from perdure.session.messages import Usage, assistant, user
from perdure.session.notes import SessionInfoChanged
from perdure.stores.in_memory.store import MemoryStore
from perdure.stores.protocol import Commit, Lease, Write
from tests.fakes.clock import START_MS, ManualClock, SeededRandom

S = StreamId("s")
DEADLINE_S = 60.0


@pytest.fixture
async def session(store: Store) -> Session:
    return await store.create(id="s")


@pytest.fixture
async def lease(session: Session, memory: MemoryStore) -> Lease:
    return await memory.acquire_lease(session.id, "engine", 60_000)


async def take(watch: Watch, count: int) -> list[AnyEvent]:
    return [await asyncio.wait_for(anext(watch), DEADLINE_S) for _ in range(count)]


async def nothing_follows(watch: Watch) -> bool:
    """Return whether the watch waits for events; the watch cannot be used afterwards."""
    following = asyncio.ensure_future(anext(watch))
    for _ in range(20):
        await asyncio.sleep(0)
    was_waiting = not following.done()
    following.cancel()
    return was_waiting


def seqs(events: list[AnyEvent]) -> list[int]:
    return [event.seq for event in events if isinstance(event, Event)]


def told(events: list[AnyEvent]) -> list[str]:
    """Return durable events as their types, and live events and snapshots as their texts."""
    return [
        event.type
        if isinstance(event, Event)
        else event.text
        if isinstance(event, LiveEvent)
        else f"[{event.partial.text}]"
        for event in events
    ]


class Engine:
    """A writer of turns in the order of the engine: intents, live events, outcomes."""

    def __init__(self, store: Store, memory: MemoryStore, lease: Lease) -> None:
        self._store = store
        self._memory = memory
        self._lease = lease
        self._of = -1
        self._n = 0

    async def write(self, *entries: NewEntry) -> None:
        write = Write(stream=S, entries=entries, lease=self._lease)
        await self._memory.commit(Commit(writes=(write,), at=START_MS))

    async def begins(self) -> None:
        await self.write(new_side(TurnStarted(1, "a")))

    async def calls(self) -> None:
        await self.write(new_side(ModelCalled(1, "m")))
        self._of, self._n = (await self._memory.state(S)).head, 0

    def says(self, text: str) -> None:
        self._n += 1
        self._store.bus.publish(LiveEvent(S, self._of, self._n, "agent:token", START_MS, text))

    async def answers(self, *, is_closed: bool = True) -> None:
        call = (await self._memory.entries(S, self._of - 1, 1))[0].id
        await self.write(new_side(ModelFinished("stop"), call))
        if is_closed:
            self._store.bus.close_call(S, self._of)

    async def ends(self) -> None:
        await self.write(new_side(TurnFinished("stop")))


@pytest.fixture
def engine(store: Store, memory: MemoryStore, lease: Lease) -> Engine:
    return Engine(store, memory, lease)


# ---------------------------------------------------------------- durable events


class CountingStore(MemoryStore):
    reads = 0

    async def entries(
        self, stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        self.reads += 1
        await asyncio.sleep(0)
        return await super().entries(stream, after, limit, **chosen)


async def test_watchers_woken_together_share_one_read(clock: ManualClock) -> None:
    memory = CountingStore(clock=clock, random=SeededRandom())
    session = await Store(memory, Outside(clock, SeededRandom(1))).create(id="s")
    watches = [session.watch(after=-1) for _ in range(50)]
    for seq in range(3):
        waiting = [asyncio.ensure_future(take(watch, 1)) for watch in watches]
        for _ in range(20):
            await asyncio.sleep(0)
        memory.reads = 0
        await session.append(user(str(seq)))
        assert [seqs(await each) for each in waiting] == [[seq]] * 50
        assert memory.reads <= 2


class SlowStore(MemoryStore):
    """A store with outdated answers: `meanwhile` runs once, before a read returns."""

    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def entries(
        self, stream: StreamId, after: int = -1, limit: int | None = None, **chosen: Any
    ) -> list[Entry]:
        found = await super().entries(stream, after, limit, **chosen)
        act, self.meanwhile = self.meanwhile, None
        if act is not None:
            await act()
            for _ in range(20):  # its wake-up is there before the answer
                await asyncio.sleep(0)
        return found


async def test_entry_appended_during_a_read_is_not_missed(clock: ManualClock) -> None:
    memory = SlowStore(clock=clock, random=SeededRandom())
    session = await Store(memory, Outside(clock, SeededRandom(1))).create(id="s")
    other = await Store(memory, Outside(clock, SeededRandom(2))).open("s")
    watch = session.watch(after=-1)
    await session.append(user("a"))
    memory.meanwhile = lambda: other.append(user("b"))
    async with asyncio.timeout(60):
        assert seqs(await take(watch, 2)) == [0, 1]


async def test_other_watchers_get_every_page_after_one_watcher_is_cancelled(
    session: Session,
) -> None:
    watches = [session.watch(after=-1) for _ in range(3)]
    waiting = [asyncio.ensure_future(take(watch, 1)) for watch in watches]
    await asyncio.sleep(0)
    await session.append(user("a"))
    waiting[0].cancel()
    assert [seqs(await each) for each in waiting[1:]] == [[0], [0]]


async def test_watch_yields_past_events_before_future_events(session: Session) -> None:
    await session.append(user("a"), assistant("b"))
    watch = session.watch(after=-1)
    assert seqs(await take(watch, 2)) == [0, 1]
    await session.append(user("c"))
    assert seqs(await take(watch, 1)) == [2]


async def test_watch_can_start_after_any_seq(session: Session) -> None:
    await session.append(*(user(str(n)) for n in range(5)), assistant("end"))
    assert seqs(await take(session.watch(after=3), 2)) == [4, 5]


async def test_watch_begins_by_default_after_the_last_seen_entry(
    store: Store, session: Session
) -> None:
    await session.append(user("seen"))
    await (await store.open("s")).append(user("not seen"))
    watch = session.watch()
    await session.append(user("later"))
    assert seqs(await take(watch, 2)) == [1, 2]


async def test_watch_yields_an_entry_appended_before_the_first_read(session: Session) -> None:
    watch = session.watch()
    await session.append(user("a"))
    assert seqs(await take(watch, 1)) == [0]


async def test_watch_from_a_seq_beyond_the_log_is_rejected(store: Store, session: Session) -> None:
    await session.append(user("a"), user("b"))
    with pytest.raises(WrongArgument, match=r"after is 2, and the newest entry of 's' is 1: "):
        await asyncio.wait_for(anext(session.watch(after=2)), DEADLINE_S)
    draft = await store.create(id="d", lazy=True)
    with pytest.raises(WrongArgument, match="or -1 to begin with the first"):
        await asyncio.wait_for(anext(draft.watch(after=0)), DEADLINE_S)


async def test_watch_can_start_after_an_entry_that_the_handle_has_not_read(
    store: Store, session: Session
) -> None:
    entry = await (await store.open("s")).append(user("not seen"))
    assert (session.head, entry.seq) == (-1, 0)
    watch = session.watch(after=0)
    following = asyncio.ensure_future(take(watch, 1))
    for _ in range(20):
        await asyncio.sleep(0)
    await session.append(user("later"))
    assert seqs(await following) == [1]


async def test_long_log_is_read_page_by_page(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "_PAGE", 3)
    await session.append(*(user(str(n)) for n in range(9)), assistant("end"))
    watch = session.watch(after=-1)
    assert seqs(await take(watch, 10)) == list(range(10))
    assert await nothing_follows(watch)


async def test_watch_cursor_moves_after_the_last_event_of_an_entry(
    session: Session, memory: MemoryStore
) -> None:
    moved = new_side(SessionInfoChanged(title="t", cwd="/w"))
    write = Write(stream=S, entries=(moved,))
    await memory.commit(Commit(writes=(write,), at=START_MS))
    watch = session.watch(after=-1)
    cursors = [watch.cursor.after]
    for _ in range(2):
        await take(watch, 1)
        cursors.append(watch.cursor.after)
    assert cursors == [-1, -1, 0]


async def test_watch_ends_with_its_store(store: Store, session: Session) -> None:
    watch = session.watch()
    following = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await store.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(following, DEADLINE_S)


async def test_watch_can_be_stopped(session: Session) -> None:
    watch = session.watch()
    await session.append(user("a"))
    await take(watch, 1)
    await watch.aclose()
    assert [event async for event in watch] == []


@pytest.mark.parametrize("is_of_store", [False, True])
async def test_closing_a_watch_ends_its_iteration_in_another_task(
    store: Store, session: Session, is_of_store: bool
) -> None:
    watch = store.watch() if is_of_store else session.watch()
    following = asyncio.ensure_future(anext(watch))
    for _ in range(3):
        await asyncio.sleep(0)
    await watch.aclose()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(following, DEADLINE_S)
    await watch.aclose()
    assert [event async for event in watch] == []


async def test_watch_neither_misses_nor_repeats_events_during_appends(
    store: Store, session: Session
) -> None:
    async def writer(name: str) -> None:
        handle = await store.open("s")
        for n in range(30):
            await handle.append(
                *(user(f"{name}{n}.{part}") for part in range(1 + n % 3)), user(".")
            )
            await asyncio.sleep(0)

    watches = [session.watch(after=-1) for _ in range(3)]
    writers = asyncio.gather(*(writer(name) for name in "abc"))
    total = 3 * sum(2 + n % 3 for n in range(30))
    for events in await asyncio.gather(*(take(watch, total) for watch in watches)):
        assert seqs(events) == list(range(total))
    await writers


async def test_watch_of_an_unsaved_session_continues_after_the_session_is_stored(
    store: Store,
) -> None:
    draft = await store.create(id="d", lazy=True)
    await draft.append(user("a"))
    watch = draft.watch(after=-1)
    assert seqs(await take(watch, 1)) == [0]
    await draft.append(user("b"))
    assert seqs(await take(watch, 1)) == [1]
    await draft.append(assistant("c"))
    await (await store.open("d")).append(user("d"))
    assert seqs(await take(watch, 2)) == [2, 3]


# ---------------------------------------------------------------- the whole namespace


async def test_watch_of_a_store_yields_events_of_all_sessions_in_commit_order(store: Store) -> None:
    one, two = await store.create(id="one"), await store.create(id="two")
    watch = store.watch(after=0)
    await one.append(user("1"))
    await two.append(user("2"))
    await one.append(user("3"))
    events = await take(watch, 3)
    assert [(event.stream, seq) for event, seq in zip(events, seqs(events), strict=True)] == [
        ("one", 0),
        ("two", 0),
        ("one", 1),
    ]
    later = store.watch(after=watch.cursor.after)
    await two.append(user("4"))
    (event,) = await take(later, 1)
    assert (event.stream, seqs([event])) == ("two", [1])


async def test_closing_the_watch_of_a_store_cancels_its_task(
    store: Store, session: Session
) -> None:
    await session.append(user("hello"))
    watch = store.watch(after=0)
    await take(watch, 1)
    before = asyncio.all_tasks()

    await watch.aclose()

    assert any(task.cancelling() for task in before)


async def test_watch_of_a_store_starts_at_newest_position_by_default(
    store: Store, session: Session
) -> None:
    await session.append(user("before"))
    watch = store.watch()
    following = asyncio.ensure_future(take(watch, 1))
    for _ in range(20):  # "now" is when the first event is asked for
        await asyncio.sleep(0)
    assert watch.cursor.after == 1
    await session.append(user("after"))
    assert seqs(await following) == [1]


async def test_watch_of_a_store_from_a_future_position_waits_and_logs_a_line(
    store: Store, session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    await session.append(user("a"))
    at = store.watch(after=1)
    past = store.watch(after=2)
    firsts = [asyncio.ensure_future(take(watch, 1)) for watch in (at, past)]
    for _ in range(20):
        await asyncio.sleep(0)
    (logged,) = caplog.records
    assert logged.getMessage().startswith(
        "a store is watched after position 2, and its newest is 1: no events follow until then"
    )
    await session.append(user("b"), user("c"))
    assert [seqs(await first) for first in firsts] == [[1], [2]]


# ---------------------------------------------------------------- live events


async def test_live_events_come_between_intent_and_outcome_of_their_call(
    session: Session, engine: Engine
) -> None:
    watch = session.watch()
    await engine.begins()
    await engine.calls()
    engine.says("Hel")
    assert told(await take(watch, 3)) == ["session:turn_started", "agent:model_called", "Hel"]
    engine.says("lo")
    await engine.answers()
    await engine.ends()
    assert told(await take(watch, 3)) == ["lo", "agent:model_finished", "session:turn_completed"]


async def test_live_events_of_two_concurrent_calls_are_not_mixed(
    session: Session, engine: Engine
) -> None:
    watch = session.watch()
    await engine.begins()
    for text in ("one", "two"):
        await engine.calls()
        engine.says(text)
        await engine.answers()
    call = ["agent:model_called", "{}", "agent:model_finished"]
    expected = [each.format(text) for text in ("one", "two") for each in call]
    assert told(await take(watch, 7))[1:] == expected


async def test_watch_begun_during_a_call_gets_a_snapshot_of_the_call(
    session: Session, engine: Engine
) -> None:
    await engine.begins()
    await engine.calls()
    engine.says("Hel")
    engine.says("lo")
    watch = session.watch(after=-1)
    events = await take(watch, 3)
    assert told(events) == ["session:turn_started", "agent:model_called", "[Hello]"]
    assert isinstance(events[2], Snapshot)
    engine.says("!")
    assert told(await take(watch, 1)) == ["!"]


async def test_watch_resumed_during_a_call_gets_the_snapshot_of_the_call(
    session: Session, engine: Engine, memory: MemoryStore
) -> None:
    await engine.begins()
    await engine.calls()
    engine.says("Hel")
    watch = session.watch(after=(await memory.state(S)).head)
    assert told(await take(watch, 1)) == ["[Hel]"]
    engine.says("lo")
    await engine.answers()
    assert told(await take(watch, 2)) == ["lo", "agent:model_finished"]


async def test_watch_snapshot_omits_ended_calls(session: Session, engine: Engine) -> None:
    await engine.begins()
    await engine.calls()
    engine.says("late")
    await engine.answers(is_closed=False)  # the moment before the engine tells the bus
    watch = session.watch(after=-1)
    events = await take(watch, 4)
    assert told(events) == [
        "session:turn_started",
        "agent:model_called",
        "[late]",
        "agent:model_finished",
    ]
    await engine.ends()
    assert told(await take(watch, 1)) == ["session:turn_completed"]


async def test_live_events_of_other_sessions_are_not_yielded(
    store: Store, session: Session, engine: Engine
) -> None:
    other = await store.create(id="other")
    watch = other.watch()
    await engine.begins()
    await engine.calls()
    engine.says("x")
    await other.append(user("mine"))
    assert told(await take(watch, 1)) == ["agent:message"]
    assert await nothing_follows(watch)


async def test_watch_of_a_store_yields_durable_and_live_events(
    store: Store, session: Session, engine: Engine
) -> None:
    watch = store.watch(after=0)
    await engine.begins()
    await engine.calls()
    engine.says("x")
    await engine.answers()
    assert told(await take(watch, 4))[1:] == ["agent:model_called", "x", "agent:model_finished"]


@pytest.mark.parametrize("seed", range(25))
async def test_every_watch_yields_the_events_of_a_turn_in_order(
    seed: int, session: Session, engine: Engine
) -> None:
    chance = random.Random(seed)

    async def pause() -> None:
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)

    async def runs() -> None:
        await engine.begins()
        for _ in range(3):
            await engine.calls()
            for text in "abcdef":
                await pause()
                engine.says(text)
            await pause()
            await engine.answers()
            await pause()
        await engine.ends()

    async def watches() -> list[AnyEvent]:
        await pause()
        return [event async for event in until_completed(session.watch(after=-1))]

    watched = [asyncio.ensure_future(watches()) for _ in range(3)]
    await runs()
    for events in await asyncio.gather(*watched):
        assert seqs(events) == list(range(8))
        check_calls(events)


async def until_completed(watch: Watch) -> AsyncIterator[AnyEvent]:
    async for event in watch:
        yield event
        if event.type == "session:turn_completed":
            return


def check_calls(events: list[AnyEvent]) -> None:
    """Check that live events follow their call's intent, precede its end, and have no gaps."""
    open_call, said = -1, ""
    for event in events:
        if isinstance(event, LiveEvent):
            assert event.of == open_call
            said += event.text
        elif isinstance(event, Snapshot):
            assert event.of == open_call
            said = event.partial.text
        elif event.type == "agent:model_called":
            open_call, said = event.seq, ""
        elif event.type == "agent:model_finished":
            assert said in ("", "abcdef")  # all of it, or the watch began after it
            open_call = -1


@pytest.mark.full_only
async def test_unreferenced_watch_is_garbage_collected(store: Store, session: Session) -> None:
    watch = session.watch()
    await session.append(user("a"))
    await take(watch, 1)
    del watch
    gc.collect()
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    assert not store.bus._subscriptions  # pyright: ignore[reportPrivateUsage] - what is tested


async def test_usage_causes_cost_event_after_model_event(session: Session, engine: Engine) -> None:
    watch = session.watch()
    await engine.write(new_side(ModelFinished("stop", Usage(1))))
    events = await take(watch, 2)
    assert [event.type for event in events] == ["agent:model_finished", "cost:updated"]


async def test_abandoned_watch_leaves_no_pending_task(store: Store) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    for number in range(3):
        left = await store.create(id=f"left-{number}")
        await left.append(user("a"), user("b"))
        async for _ in left.watch(after=-1):
            break
    gc.collect()
    for _ in range(10):
        await asyncio.sleep(0)
    gc.collect()
    assert reported == []
