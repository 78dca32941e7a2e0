"""A consumer applies new events, skips repeated ones, and detects missing ones."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from perdure.errors import WrongArgument
from perdure.events.consumer import Follower, Told, Verdict
from perdure.events.projection import wire
from perdure.events.types import Event, LiveEvent, Snapshot
from perdure.session.ids import StreamId
from perdure.session.messages import Message

S = StreamId("s")


def durable(seq: int, index: int = 0, *, has_more: bool = False, about: int = -1) -> Event:
    type_ = "agent:model_finished" if about >= 0 else "x"
    payload = {"about": f"s/{about}"} if about >= 0 else {}
    return Event(S, seq, index, type_, 0, payload, has_more)


def token(n: int, of: int = 4) -> LiveEvent:
    return LiveEvent(S, of, n, "agent:token", 0, "x")


def snapshot(n: int, of: int = 4) -> Snapshot:
    return Snapshot(S, of, n, Message("assistant", ()), 0)


CASES: list[tuple[list[Event | LiveEvent | Snapshot], list[Verdict], int]] = [
    ([durable(0), durable(1)], ["new", "new"], 1),
    ([durable(0), durable(0)], ["new", "repeated"], 0),
    ([durable(1)], ["gap"], -1),
    ([durable(0), durable(2)], ["new", "gap"], 0),
    ([durable(0, has_more=True), durable(0, 1)], ["new", "new"], 0),
    ([durable(0, has_more=True)], ["new"], -1),
    ([durable(0, has_more=True), durable(1)], ["new", "gap"], -1),
    ([durable(0, has_more=True), durable(0)], ["new", "repeated"], -1),
    ([durable(0, 1)], ["gap"], -1),
    ([token(1), token(2), token(2)], ["new", "new", "repeated"], -1),
    ([token(1), token(3)], ["new", "gap"], -1),
    ([token(3)], ["gap"], -1),
    ([snapshot(3), token(4)], ["new", "new"], -1),
    ([token(1), durable(0, about=4), token(1)], ["new", "new", "new"], 0),
]


@pytest.mark.parametrize(("events", "verdicts", "after"), CASES)
def test_events_are_classified_as_new_repeated_or_gap(
    events: list[Event | LiveEvent | Snapshot], verdicts: list[Verdict], after: int
) -> None:
    follower = Follower()
    assert [follower.take(event) for event in events] == verdicts
    assert follower.resume_after == after


@pytest.mark.parametrize(("events", "verdicts", "after"), CASES)
def test_wire_events_are_classified_like_other_events(
    events: list[Event | LiveEvent | Snapshot], verdicts: list[Verdict], after: int
) -> None:
    follower = Follower()
    assert [follower.take(wire(event)) for event in events] == verdicts
    assert follower.resume_after == after


def test_consumer_resumes_after_last_seq() -> None:
    with pytest.raises(WrongArgument, match="from -1 as after, not -2"):
        Follower(after=-2)
    follower = Follower(after=7)
    assert [follower.take(durable(n)) for n in (7, 8)] == ["repeated", "new"]


def test_value_that_is_not_an_event_is_rejected() -> None:
    with pytest.raises(ValueError, match="no event of a session"):
        Follower().take({"type": "x"})


async def test_connection_that_breaks_or_loses_events_is_reopened() -> None:
    connections = iter(
        [
            ([durable(0), durable(2)], -1, False),
            ([durable(1), durable(2)], 0, True),
            ([durable(3)], 2, False),
        ]
    )

    async def connect(after: int) -> AsyncIterator[Told]:
        events, expected, is_breaking = next(connections)
        assert after == expected
        for event in events:
            yield event
        if is_breaking:
            raise ConnectionResetError

    seen = [event async for event in Follower().events(connect)]
    assert [event.seq for event in seen if isinstance(event, Event)] == [0, 1, 2, 3]


async def test_error_that_does_not_concern_the_connection_is_raised() -> None:
    async def connect(after: int) -> AsyncIterator[Told]:
        yield durable(after + 1)
        raise RuntimeError("ours")

    with pytest.raises(RuntimeError, match="ours"):
        async for _ in Follower().events(connect):
            pass


async def test_connection_is_closed_before_the_next_one_is_opened() -> None:
    is_open = False

    async def connect(after: int) -> AsyncIterator[Told]:
        nonlocal is_open
        assert not is_open
        is_open = True
        try:
            yield durable(after + 1)
            yield durable(after + 3 if after < 2 else after + 2)
        finally:
            is_open = False

    async with aclosing(Follower().events(connect)) as events:
        seen = [await anext(events) for _ in range(3)]
    assert [event.seq for event in seen if isinstance(event, Event)] == [0, 1, 2]


class Failing(AsyncIterator[Told]):
    """A connection that loses an event, and fails when it is closed."""

    def __init__(self, after: int) -> None:
        self.seqs = [after + 1, after + 3]

    async def __anext__(self) -> Told:
        return durable(self.seqs.pop(0))

    async def aclose(self) -> None:
        raise ConnectionResetError


async def test_errors_of_opening_and_closing_a_connection_end_only_the_connection() -> None:
    opened = 0

    def connect(after: int) -> AsyncIterator[Told]:
        nonlocal opened
        opened += 1
        if opened % 2:
            raise ConnectionRefusedError
        return Failing(after)

    async with aclosing(Follower().events(connect)) as events:
        seen = [await anext(events) for _ in range(3)]
    assert [event.seq for event in seen if isinstance(event, Event)] == [0, 1, 2]
    assert opened == 6
