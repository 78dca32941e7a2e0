"""Missing live events, and those that are told twice."""

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


def test_numbers_in_order_miss_nothing() -> None:
    gaps = Gaps()
    assert [gaps.missed_count(token(n)) for n in (1, 2, 3)] == [0, 0, 0]


def test_a_jump_tells_how_many_are_missing() -> None:
    gaps = Gaps()
    assert gaps.missed_count(token(1)) == 0
    assert gaps.missed_count(token(5)) == 3


def test_who_joins_late_without_a_snapshot_has_missed_the_beginning() -> None:
    assert Gaps().missed_count(token(3)) == 2


def test_a_snapshot_stands_for_everything_before_it() -> None:
    gaps = Gaps()
    assert gaps.missed_count(snapshot(7)) == 0
    assert gaps.missed_count(token(8)) == 0


def test_a_repetition_is_told_and_changes_nothing() -> None:
    gaps = Gaps()
    gaps.missed_count(token(1))
    gaps.missed_count(token(2))
    assert gaps.missed_count(token(1)) == -1
    assert gaps.missed_count(token(3)) == 0


def test_calls_are_numbered_each_for_itself() -> None:
    gaps = Gaps()
    assert gaps.missed_count(token(1, of=4)) == 0
    assert gaps.missed_count(token(1, of=9)) == 0


def test_a_closed_call_is_forgotten() -> None:
    gaps = Gaps()
    gaps.missed_count(token(1))
    gaps.close_call(S, 4)
    assert gaps.missed_count(token(1)) == 0
