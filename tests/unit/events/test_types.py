"""Events as values."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.events.types import SNAPSHOT, AnyEvent, Event, LiveEvent, LiveType, Snapshot
from perdure.session.ids import StreamId
from perdure.session.messages import Message

S = StreamId("s")
EVENTS: list[AnyEvent] = [
    Event(S, 3, 0, "session:ended", 1, {}),
    LiveEvent(S, 3, 1, "agent:token", 1, "x"),
    Snapshot(S, 3, 1, Message("assistant", ()), 1),
]


def test_every_event_has_a_type_and_a_stream() -> None:
    assert [event.type for event in EVENTS] == ["session:ended", "agent:token", SNAPSHOT]
    assert {event.stream for event in EVENTS} == {S}


@pytest.mark.parametrize("event", EVENTS)
def test_event_cannot_be_changed(event: AnyEvent) -> None:
    with pytest.raises(AttributeError):
        event.at = 2  # pyright: ignore[reportAttributeAccessIssue] - what is tested


def test_snapshot_is_not_a_live_event_type() -> None:
    assert SNAPSHOT not in get_args(LiveType)
