"""The times at which recurring messages are due."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from perdure import Recurring
from perdure.errors import WrongArgument
from perdure.session.clock import moment_of, ms_of


def times(cron: str, after: str, count: int, zone: str = "UTC") -> list[str]:
    recurring, at = Recurring(cron, "go", zone), ms_of(datetime.fromisoformat(after + "+00:00"))
    found: list[str] = []
    for _ in range(count):
        at = recurring.next_after(at)
        found.append(f"{moment_of(at):%Y-%m-%dT%H:%M}")
    return found


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("*/20 * * * *", ["2026-11-24T12:20", "2026-11-24T12:40", "2026-11-24T13:00"]),
        ("0 9 * * mon-fri", ["2026-11-25T09:00", "2026-11-26T09:00", "2026-11-27T09:00"]),
        ("0 9 * * fri-sun", ["2026-11-27T09:00", "2026-11-28T09:00", "2026-11-29T09:00"]),
        ("0 9 * * sun-sun", ["2026-11-29T09:00", "2026-12-06T09:00", "2026-12-13T09:00"]),
        ("0 9 * * 0-0", ["2026-11-29T09:00", "2026-12-06T09:00", "2026-12-13T09:00"]),
        ("30 8,17 * * 7", ["2026-11-29T08:30", "2026-11-29T17:30", "2026-12-06T08:30"]),
        ("0 0 31 * *", ["2026-12-31T00:00", "2027-01-31T00:00", "2027-03-31T00:00"]),
        ("0 0 29 FEB *", ["2028-02-29T00:00", "2032-02-29T00:00", "2036-02-29T00:00"]),
        ("0 0 1 * fri", ["2026-11-27T00:00", "2026-12-01T00:00", "2026-12-04T00:00"]),
        ("5/25 0 1-3/2 dec *", ["2026-12-01T00:05", "2026-12-01T00:30", "2026-12-01T00:55"]),
    ],
)
def test_cron_expression_gives_its_next_times(cron: str, expected: list[str]) -> None:
    assert times(cron, "2026-11-24T12:00", 3) == expected


def test_scheduled_time_occurs_once_when_clocks_change() -> None:
    spring = times("30 2 * * *", "2026-03-28T12:00", 2, "Europe/Oslo")
    assert spring == ["2026-03-29T01:30", "2026-03-30T00:30"]  # 02:30 is skipped: 03:30
    autumn = times("30 2 * * *", "2026-10-24T12:00", 2, "Europe/Oslo")
    assert autumn == ["2026-10-25T00:30", "2026-10-26T01:30"]  # 02:30 happens twice: the first


def test_scheduled_time_moved_past_midnight_is_found_on_the_next_day() -> None:
    # The clock of Pyongyang skipped from 23:30 to midnight, so 23:45 was 00:15 of the next day.
    after_midnight = "2018-05-04T15:05"
    assert times("45 23 * * *", after_midnight, 1, "Asia/Pyongyang") == ["2018-05-04T15:15"]


def test_next_time_of_a_schedule_is_after_the_given_time() -> None:
    at = ms_of(datetime(2026, 1, 1, 9, tzinfo=UTC))
    recurring = Recurring("0 9 * * *", "go")
    assert recurring.next_after(at - 1) == at
    assert recurring.next_after(at) == at + 86_400_000


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "0 9 * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "-1 * * * *",
        "1,,2 * * * *",
        "٣ * * * *",
        "0 0 30 feb *",
        "1" * 10_000 + " * * * *",
    ],
)
def test_invalid_cron_expression_is_refused(cron: str) -> None:
    with pytest.raises(WrongArgument, match="cron expression") as refused:
        Recurring(cron, "go")
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("zone", ["Mars/Base", "", "../etc/passwd", "/etc/localtime", "Europe"])
def test_unknown_time_zone_is_refused(zone: str) -> None:
    with pytest.raises(WrongArgument, match="unknown time zone"):
        Recurring("* * * * *", "go", zone)


def test_recurring_message_needs_text() -> None:
    with pytest.raises(WrongArgument, match="not empty"):
        Recurring("* * * * *", "")
    with pytest.raises(WrongArgument, match="the message is blank"):
        Recurring("* * * * *", " \n")
