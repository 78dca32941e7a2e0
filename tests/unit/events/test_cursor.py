"""Detection of missing and repeated live events."""

from __future__ import annotations

from perdure.events.cursor import Gaps
from perdure.events.types import LiveEvent, Snapshot
from perdure.session.ids import StreamId
from perdure.session.messages import Message

S = StreamId("s")


def token(n: int, of: int = 4) -> LiveEvent:
    return LiveEvent(S, of, n, "agent:token", 0, "x")


def snapshot(n: int, of: int = 4) -> Snapshot:
    return Snapshot(S, of, n, Message("assistant", ()), 0)


def test_consecutive_numbers_have_no_gap() -> None:
    gaps = Gaps()
    assert [gaps.missed_count(token(n)) for n in (1, 2, 3)] == [0, 0, 0]


def test_jump_in_event_numbers_gives_the_number_of_missing_events() -> None:
    gaps = Gaps()
    assert gaps.missed_count(token(1)) == 0
    assert gaps.missed_count(token(5)) == 3


def test_first_live_event_with_a_higher_number_counts_as_a_gap() -> None:
    assert Gaps().missed_count(token(3)) == 2


def test_snapshot_replaces_earlier_events() -> None:
    gaps = Gaps()
    assert gaps.missed_count(snapshot(7)) == 0
    assert gaps.missed_count(token(8)) == 0


def test_repeated_event_is_reported_and_does_not_move_the_cursor() -> None:
    gaps = Gaps()
    gaps.missed_count(token(1))
    gaps.missed_count(token(2))
    assert gaps.missed_count(token(1)) == -1
    assert gaps.missed_count(token(3)) == 0


def test_live_events_of_each_call_are_numbered_separately() -> None:
    gaps = Gaps()
    assert gaps.missed_count(token(1, of=4)) == 0
    assert gaps.missed_count(token(1, of=9)) == 0


def test_event_cursor_forgets_a_closed_call() -> None:
    gaps = Gaps()
    gaps.missed_count(token(1))
    gaps.close_call(S, 4)
    assert gaps.missed_count(token(1)) == 0
