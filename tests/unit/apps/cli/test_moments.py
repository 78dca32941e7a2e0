"""Times as a person types them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime

import pytest
import typer

from perdure.apps.cli import moments
from perdure.apps.cli.moments import coming_moment, moment, typed_moment
from tests.fakes.clock import ManualClock

NOW = datetime.fromisoformat("2026-11-23T18:30:15")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2026-11-21", "2026-11-21T00:00:00"),
        ("2026-11", "2026-11-01T00:00:00"),
        ("2026-11-21T09:30", "2026-11-21T09:30:00"),
        ("2026-11-21 09:30:05", "2026-11-21T09:30:05"),
        ("2026-11-21T09:30:00+02:00", "2026-11-21T09:30:00+02:00"),
        ("today", "2026-11-23T00:00:00"),
        ("Yesterday", "2026-11-22T00:00:00"),
        ("tomorrow", "2026-11-24T00:00:00"),
        ("Tomorrow 9:05", "2026-11-24T09:05:00"),
        ("yesterday 23:59", "2026-11-22T23:59:00"),
        ("7d", "2026-11-16T18:30:15"),
        ("20s", "2026-11-23T18:29:55"),
        ("2w ago", "2026-11-09T18:30:15"),
        ("90m", "2026-11-23T17:00:15"),
        (" 12h ", "2026-11-23T06:30:15"),
    ],
)
def test_time_typed_by_a_person_is_parsed(typed: str, meant: str) -> None:
    assert moment(typed, NOW).isoformat() == meant


@pytest.mark.parametrize(
    "typed",
    ["", "soon", "7", "d", "-7d", "7.5d", "999999w", "2026-13-01", "today 24:00", "tomorrow 9"],
)
def test_invalid_time_is_rejected_with_the_valid_forms(typed: str) -> None:
    with pytest.raises(typer.BadParameter, match="yesterday, 7d"):
        moment(typed, NOW)


def test_day_begins_at_local_midnight() -> None:
    assert typed_moment("today").hour == 0
    assert typed_moment("today").tzinfo is None


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set the local time of this process to Berlin."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.skipif(sys.platform == "win32", reason="has no TZ variable")
@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "typed", "find", "hours"),
    [
        ("2026-10-24T23:30:00+00:00", "3h", coming_moment, 3),
        ("2026-10-24T23:30:00+00:00", "90m", coming_moment, 1.5),
        ("2026-10-25T00:59:50+00:00", "36s", coming_moment, 0.01),
        ("2026-10-25T01:15:00+00:00", "30m", coming_moment, 0.5),
        ("2026-03-29T00:30:00+00:00", "1h", coming_moment, 1),
        ("2026-10-24T10:00:00+00:00", "1d", coming_moment, 25),
        ("2026-10-25T02:30:00+00:00", "3h", typed_moment, -3),
    ],
)
def test_span_of_hours_has_the_same_length_across_a_clock_change(
    monkeypatch: pytest.MonkeyPatch,
    now: str,
    typed: str,
    find: Callable[[str], datetime],
    hours: float,
) -> None:
    start_s = int(datetime.fromisoformat(now).timestamp())
    monkeypatch.setattr(moments, "SystemClock", lambda: ManualClock(start_s * 1000))
    assert (find(typed).timestamp() - start_s) / 3600 == hours
