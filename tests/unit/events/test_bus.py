"""Live events inside one process."""

from __future__ import annotations

import gc
import logging

import pytest

from perdure.events.bus import PROGRESS_CHARACTERS, LiveBus
from perdure.events.cursor import Gaps
from perdure.events.types import LiveEvent, LiveType, Snapshot
from perdure.session.ids import StreamId
from perdure.session.messages import TextPart, ThinkingPart

S = StreamId("s")


def live(
    n: int, text: str = "x", *, of: int = 1, type_: LiveType = "agent:token", stream: str = S
) -> LiveEvent:
    return LiveEvent(StreamId(stream), of, n, type_, 1000 + n, text)


def test_subscriber_receives_events_in_published_order() -> None:
    bus = LiveBus()
    subscription = bus.subscribe(S)
    events = [live(1), live(2)]
    for event in events:
        bus.publish(event)
    assert subscription.take() == events
    assert subscription.take() == []


def test_subscriber_of_one_stream_receives_no_events_of_other_streams() -> None:
    bus = LiveBus()
    one, all_of_them = bus.subscribe(S), bus.subscribe()
    other = live(1, stream="other")
    bus.publish(other)
    assert one.take() == []
    assert all_of_them.take() == [other]


def test_subscriber_that_joins_during_a_call_starts_with_snapshot() -> None:
    bus = LiveBus()
    bus.publish(live(1, "think", type_="agent:reasoning"))
    bus.publish(live(2, "He"))
    bus.publish(live(3, "llo"))
    subscription = bus.subscribe(S)
    bus.publish(live(4, "!"))
    (snapshot,) = subscription.take()
    assert isinstance(snapshot, Snapshot)
    assert snapshot.partial.parts == (ThinkingPart("think"), TextPart("Hello!"))
    assert (snapshot.of, snapshot.n, snapshot.at) == (1, 4, 1004)
    bus.publish(live(5))
    assert subscription.take() == [live(5)]


def test_closed_model_call_has_no_snapshot() -> None:
    bus = LiveBus()
    bus.publish(live(1))
    bus.close_call(S, 1)
    assert bus.snapshots() == []
    assert bus.subscribe(S).take() == []


def test_close_of_a_call_without_events_is_no_error() -> None:
    LiveBus().close_call(S, 1)


def test_slow_subscriber_gets_snapshot_instead_of_backlog() -> None:
    bus = LiveBus(capacity=3)
    slow, fast = bus.subscribe(S), bus.subscribe(S)
    gaps = Gaps()
    seen: list[int] = []
    for n in range(1, 11):
        bus.publish(live(n, str(n % 10)))
        seen += [event.n for event in fast.take()]
    assert seen == list(range(1, 11))
    caught_up = slow.take()
    assert [type(event) for event in caught_up] == [Snapshot]
    bus.publish(live(11))
    assert [gaps.missed_count(event) for event in (*caught_up, *slow.take())] == [0, 0]


def test_subscriber_that_missed_a_whole_call_gets_no_snapshot() -> None:
    bus = LiveBus(capacity=1)
    slow = bus.subscribe(S)
    for n in (1, 2, 3):
        bus.publish(live(n))
    bus.close_call(S, 1)
    assert slow.take() == []


def test_failing_observer_does_not_affect_other_observers(caplog: pytest.LogCaptureFixture) -> None:
    bus = LiveBus()
    seen: list[LiveEvent] = []

    def fail(event: LiveEvent) -> None:
        raise RuntimeError("observer")

    bus.observe(fail)
    bus.observe(seen.append)
    subscription = bus.subscribe(S)
    with caplog.at_level(logging.ERROR):
        bus.publish(live(1))
    assert seen == [live(1)]
    assert subscription.take() == [live(1)]
    assert "an observer of live events failed" in caplog.text


def test_event_observer_can_be_removed() -> None:
    bus = LiveBus()
    seen: list[LiveEvent] = []
    stop = bus.observe(seen.append)
    bus.publish(live(1))
    stop()
    bus.publish(live(2))
    assert seen == [live(1)]


async def test_subscriber_can_wait_for_the_next_event() -> None:
    bus = LiveBus()
    subscription = bus.subscribe(S)
    bus.publish(live(1))
    await subscription.wait()
    assert subscription.take() == [live(1)]


def test_subscription_ends_with_its_subscriber() -> None:
    bus = LiveBus()
    subscription = bus.subscribe(S)
    assert S in bus._subscriptions  # pyright: ignore[reportPrivateUsage] - what is tested
    del subscription
    gc.collect()
    assert not bus._subscriptions  # pyright: ignore[reportPrivateUsage] - what is tested


def test_snapshot_contains_only_end_of_long_tool_progress() -> None:
    bus = LiveBus()
    for n in range(1, 40):
        bus.publish(live(n, chr(64 + n) * 8192, type_="agent:tool_progress"))
    (snapshot,) = bus.snapshots()
    (part,) = snapshot.partial.parts
    assert snapshot.partial.role == "tool"
    assert isinstance(part, TextPart)
    assert len(part.text) <= 2 * PROGRESS_CHARACTERS
    assert part.text.endswith(chr(64 + 39))
