"""Live events of one process reach the watches of another process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import pytest

from perdure.client import watch as watches
from perdure.errors import StoreUnavailable
from perdure.events.bus import Live, LiveBus, Subscription
from perdure.events.envelope import EventDraft
from perdure.events.types import LiveEvent, Snapshot
from perdure.session.ids import StreamId
from perdure.stores.cluster import live_receiver, live_sender
from perdure.stores.cluster.live_relay import LiveRelay
from perdure.stores.cluster.live_table import Streams
from tests.fakes.chats import Stage, says
from tests.fakes.live_wire import LiveWire, WiredTable

S = StreamId("s")
LIMIT_S = 30.0


class Process:
    """A bus with its relay and its table."""

    def __init__(self, wire: LiveWire, name: str) -> None:
        self.bus = LiveBus()
        self._wire = wire
        self.table = WiredTable(wire, name)
        self.relay = LiveRelay(self.bus, self.table)
        self.bus.relay = self.relay

    def show(self, *texts: str, of: int = 1, stream: StreamId = S) -> None:
        """Publish `texts` as deltas of the call `of`."""
        for text in texts:
            draft = EventDraft("agent:token", of, text, session_id=stream, agent="a")
            self.bus.tell(draft, 1_000, self._wire.epochs[stream])

    def watch(self, stream: StreamId | None = S, of: int | None = 1) -> Subscription:
        """Subscribe as a watch does when it has read the start of a call of another process."""
        subscription = self.bus.subscribe(stream)
        self.relay.follow(stream)
        if stream is not None:
            self.relay.call_elsewhere(stream, of)
        return subscription

    async def end(self, of: int = 1, stream: StreamId = S) -> None:
        """Flush the live events of the call, then close it."""
        await self.bus.settle(stream, of)
        self.bus.close_call(stream, of)


@pytest.fixture
def wire() -> LiveWire:
    return LiveWire(S)


@pytest.fixture
async def worker(wire: LiveWire, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Process]:
    monkeypatch.setattr(live_sender, "FLUSH_S", 0.001)
    monkeypatch.setattr(live_sender, "LINGER_S", 0.001)
    made = Process(wire, "worker")
    made.table.listen()
    yield made
    await made.relay.aclose()


@pytest.fixture
async def other(wire: LiveWire) -> AsyncIterator[Process]:
    made = Process(wire, "other")
    yield made
    await made.relay.aclose()


async def until_text(
    subscription: Subscription, text: str, before: list[Live] | None = None
) -> list[Live]:
    """Return `before` and the new events of `subscription`, once their texts equal `text`."""
    got = list(before or ())
    async with asyncio.timeout(LIMIT_S):
        while text_of(got) != text:
            got += subscription.take()
            await asyncio.sleep(0)
    return got


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` is true."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.001)


def ignore(_: Streams) -> None:
    """Accept a notification without any effect."""


async def rest() -> None:
    """Run the event loop until all tasks wait for time."""
    for _ in range(50):
        await asyncio.sleep(0)


def text_of(got: list[Live]) -> str:
    """Return the text of the events, and check their order."""
    text, n = "", 0
    for event in got:
        if isinstance(event, Snapshot):
            text = event.partial.text
        else:
            assert event.n == n + 1
            text += event.text
        n = event.n
    return text


async def test_watch_in_another_process_gets_each_live_event_once(
    worker: Process, other: Process
) -> None:
    live = other.watch()
    await rest()
    worker.show("He", "l")
    got = await until_text(live, "Hel")
    worker.show("lo")
    got = await until_text(live, "Hello", got)
    await worker.end()
    await other.relay.catch_up([(S, 1)], is_last=True)
    got += live.take()
    assert got == [
        LiveEvent(S, 1, n, "agent:token", 1_000, text, "a")
        for n, text in enumerate(("He", "l", "lo"), 1)
    ]


async def test_live_events_without_a_watch_are_not_stored(worker: Process, other: Process) -> None:
    other.table.listen()
    worker.show("Hello")
    await rest()
    await worker.end()
    assert worker.table.calls == {"watched": 1}
    worker.show("again", of=2)
    await worker.end(of=2)
    await rest()
    assert worker.table.calls == {"watched": 1}


async def test_watch_begun_during_a_call_gets_snapshot_then_events(
    worker: Process, other: Process
) -> None:
    worker.show("He", "l")
    await rest()
    live = other.watch(of=None)
    got = await until_text(live, "Hel")
    worker.show("lo")
    got = await until_text(live, "Hello", got)
    assert [type(event) for event in got] == [Snapshot, LiveEvent]


async def test_catch_up_delivers_the_last_events_of_a_call(worker: Process, other: Process) -> None:
    live = other.watch()
    await rest()
    worker.show("Hello")
    await worker.bus.settle(S, 1)
    await other.relay.catch_up([(S, 1)], is_last=True)
    assert text_of(live.take()) == "Hello"


async def test_live_rows_are_deleted_after_the_call(
    worker: Process, other: Process, wire: LiveWire
) -> None:
    other.watch()
    await rest()
    worker.show("Hello")
    await worker.end()
    assert wire.rows
    await until(lambda: not wire.rows)


async def test_watch_begun_after_the_end_of_a_call_gets_nothing_of_that_call(
    worker: Process, other: Process, wire: LiveWire
) -> None:
    first = other.watch()
    await rest()
    worker.show("Hello")
    await worker.bus.settle(S, 1)
    assert text_of(await until_text(first, "Hello")) == "Hello"
    other.relay.ended(S, 1)
    third = Process(wire, "third")
    late = third.watch(of=None)
    await rest()
    assert late.take() == []
    assert third.bus.snapshots() == []
    await third.relay.aclose()


async def test_live_events_written_after_a_lost_lease_are_not_read(
    worker: Process, other: Process, wire: LiveWire
) -> None:
    live = other.watch()
    await rest()
    worker.show("old")
    await until_text(live, "old")
    wire.epochs[S] = 2
    worker.show(" and late")
    await rest()
    await worker.bus.settle(S, 1)
    other.relay.ended(S, 1)
    assert live.take() == []
    assert other.bus.snapshots() == []
    successor = Process(wire, "successor")
    other.relay.call_elsewhere(S, 5)
    successor.show("new", of=5)
    assert text_of(await until_text(live, "new")) == "new"
    await successor.relay.aclose()


async def test_live_events_of_all_calls_are_stored_in_one_write(
    worker: Process, other: Process, wire: LiveWire
) -> None:
    streams = [StreamId(f"s{number}") for number in range(20)]
    wire.open.update(streams)
    wire.epochs.update(dict.fromkeys(streams, 1))
    watches = [other.watch(stream) for stream in streams]
    await rest()
    for stream in streams:
        worker.show("x", stream=stream)
    await asyncio.gather(*(until_text(live, "x") for live in watches))
    assert worker.table.calls["write"] <= 2
    assert other.table.calls["register"] <= 2


async def test_watch_of_all_streams_gets_live_events(worker: Process, other: Process) -> None:
    live = other.watch(None)
    await rest()
    worker.show("Hello")
    assert text_of(await until_text(live, "Hello")) == "Hello"


async def test_registration_for_live_events_ends_with_the_last_watch(
    worker: Process, other: Process, wire: LiveWire
) -> None:
    other.watch()
    other.relay.follow(S)
    await rest()
    other.relay.unfollow(S)
    await rest()
    assert wire.watching
    other.relay.unfollow(S)
    await rest()
    assert wire.watching == {}
    worker.show("Hello")
    await rest()
    assert worker.table.calls["write"] == 0


async def test_registrations_are_renewed_while_call_is_open(
    other: Process, wire: LiveWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_receiver, "RENEW_S", 0.001)
    monkeypatch.setattr(live_receiver, "TERM_S", 0.0)
    other.watch()
    await until(lambda: other.table.calls["renew"] > 1)
    assert (S, "other") in wire.watching
    other.relay.ended(S, 1)
    await until(lambda: not wire.watching)


async def test_live_events_are_read_with_the_last_history_page(
    worker: Process, other: Process
) -> None:
    other.watch()
    await rest()
    worker.show("Hello")
    await worker.bus.settle(S, 1)
    await rest()
    before = other.table.calls["read"]
    await other.relay.catch_up([(S, of) for of in range(2, 102)], is_last=False)
    assert other.table.calls["read"] == before
    await other.relay.catch_up([(S, of) for of in range(2, 102)], is_last=True)
    assert other.table.calls["read"] == before + 1


async def test_catch_up_delivers_live_events_before_the_notification(
    worker: Process, other: Process
) -> None:
    live = other.watch()
    await rest()
    other.table.attach(other.table.on_watch, ignore)  # the notification is late
    worker.show("Hello")
    await worker.bus.settle(S, 1)
    await other.relay.catch_up([(S, 1)], is_last=False)
    assert text_of(live.take()) == "Hello"


async def test_watch_of_long_history_reads_live_events_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watches, "_PAGE", 10)
    count = 45
    stage = Stage(*(says(f"answer {number}") for number in range(count)))
    chat = await stage.chat()
    for number in range(count):
        await chat.send(f"{number}")
    table = WiredTable(LiveWire(), "console")
    relay = stage.store.bus.relay = LiveRelay(stage.store.bus, table)
    relay.follow(None)
    await rest()
    before = table.calls["read"]
    ends = 0
    async with asyncio.timeout(LIMIT_S):
        async for event in stage.store.watch(0):
            ends += event.type == "session:turn_completed"
            if ends == count:
                break
    await rest()
    assert table.calls["read"] - before <= 1
    await relay.aclose()


def test_old_stream_notifications_are_forgotten() -> None:
    named = live_sender.NamedStreams()
    for second in range(1_000):
        named.add([StreamId(f"s{second}")], float(second))
        assert named.has(StreamId(f"s{second}"), float(second))
    assert len(named) <= 2 * live_sender.TERM_S + 1
    assert named.has(StreamId("s999"), 999.0 + live_sender.TERM_S - 1)
    assert not named.has(StreamId("s999"), 999.0 + live_sender.TERM_S)


async def test_watch_opened_while_connecting_gets_a_snapshot(
    worker: Process, other: Process, wire: LiveWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_sender, "FLUSH_S", 0.05)  # the text so far is not written at once
    first = Process(wire, "first")
    live = first.watch()
    await rest()
    worker.show("He", "l")
    await until_text(live, "Hel")
    other.table.is_listening = True  # it still connects
    late = other.watch(of=None)
    await rest()
    other.table.on_rows(None)
    got = await until_text(late, "Hel")
    assert [type(event) for event in got] == [Snapshot]
    await first.relay.aclose()


async def test_live_events_after_a_lost_lease_are_not_stored(
    worker: Process, other: Process, wire: LiveWire
) -> None:
    worker.show("dead text")
    wire.epochs[S] = 2
    live = other.watch()
    await until(lambda: worker.table.calls["write"] > 0)
    await rest()
    assert wire.rows == {}
    assert live.take() == []


async def test_failed_registration_for_live_events_is_repeated(
    worker: Process, other: Process, wire: LiveWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_receiver, "AGAIN_S", 0.001)
    live = other.watch(None)
    await rest()
    register = other.table.register
    failures = 0

    async def fail_twice(streams: Sequence[StreamId]) -> list[StreamId]:
        nonlocal failures
        if failures == 2:
            return await register(streams)
        failures += 1
        raise StoreUnavailable("the server", "it restarts")

    monkeypatch.setattr(other.table, "register", fail_twice)
    wire.watching.clear()  # as a restarted server does with unlogged tables
    other.table.on_rows(None)
    await until(lambda: bool(wire.watching))
    assert failures == 2
    worker.show("Hello")
    assert text_of(await until_text(live, "Hello")) == "Hello"


async def test_live_event_written_during_registration_is_delivered(
    worker: Process, other: Process, wire: LiveWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = other.table.register

    async def return_late(streams: Sequence[StreamId]) -> list[StreamId]:
        found = await register(streams)
        await until(lambda: bool(wire.rows))
        return found

    monkeypatch.setattr(other.table, "register", return_late)
    worker.show("Hello")
    live = other.watch()
    assert text_of(await until_text(live, "Hello")) == "Hello"


async def test_live_events_whose_rows_were_lost_are_asked_for_again(
    worker: Process, other: Process, wire: LiveWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_receiver, "AGAIN_S", 0.0)
    live = other.watch()
    await rest()
    on_rows = other.table.on_rows
    monkeypatch.setattr(other.table, "on_rows", ignore)
    worker.show("He", "l")
    await until(lambda: bool(wire.rows))
    wire.rows.clear()
    monkeypatch.setattr(other.table, "on_rows", on_rows)
    worker.show("lo")
    assert text_of(await until_text(live, "Hello")) == "Hello"


async def test_watch_reopened_during_a_call_gets_all_texts(worker: Process, other: Process) -> None:
    live = other.watch()
    await rest()
    worker.show("He", "l")
    await until_text(live, "Hel")
    other.relay.unfollow(S)
    await rest()
    again = other.watch()
    got = await until_text(again, "Hel")
    worker.show("lo")
    assert text_of(await until_text(again, "Hello", got)) == "Hello"


async def test_watch_gets_events_if_listening_begins_during_registration(
    worker: Process, other: Process, wire: LiveWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    register, on_rows = other.table.register, other.table.on_rows
    may_return = asyncio.Event()

    async def return_late(streams: Sequence[StreamId]) -> list[StreamId]:
        found = await register(streams)
        await may_return.wait()
        return found

    monkeypatch.setattr(other.table, "register", return_late)
    monkeypatch.setattr(other.table, "on_rows", ignore)  # nobody listens yet
    other.table.is_listening = True
    worker.show("Hello")
    live = other.watch()
    await until(lambda: bool(wire.rows))
    monkeypatch.setattr(other.table, "on_rows", on_rows)
    on_rows(None)
    may_return.set()
    assert text_of(await until_text(live, "Hello")) == "Hello"


async def test_ended_watch_is_not_registered_again(other: Process) -> None:
    other.watch(S)
    await rest()
    other.relay.unfollow(S)
    other.relay.follow(S)
    other.relay.follow(None)
    await rest()
    other.relay.unfollow(None)
    await rest()
    assert other.table.calls["register"] == 2


async def test_watch_registered_while_a_worker_starts_gets_events(
    wire: LiveWire, other: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Process(wire, "worker")
    other.table.listen()
    watched = made.table.watched
    watches: list[Subscription] = []

    async def overtaken() -> list[StreamId]:
        found = await watched()
        watches.append(other.watch())
        await rest()
        return found

    monkeypatch.setattr(made.table, "watched", overtaken)
    made.table.listen()
    await until(lambda: bool(watches))
    await rest()
    made.show("Hello")
    assert text_of(await until_text(watches[0], "Hello")) == "Hello"
    await made.relay.aclose()


@pytest.mark.parametrize(
    ("erased", "left"), [(None, ""), (((0, 1), (4, 9)), ""), (((2, 9),), "Hello")]
)
async def test_snapshot_contains_no_text_of_an_erased_call(
    worker: Process, other: Process, erased: tuple[tuple[int, int], ...] | None, left: str
) -> None:
    live = other.watch()
    await rest()
    worker.show("Hello")
    await until_text(live, "Hello")
    other.relay.erased(S, erased)
    assert "".join(each.partial.text for each in other.bus.snapshots()) == left
