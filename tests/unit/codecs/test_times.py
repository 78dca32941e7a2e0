"""ISO 8601 texts and Unix milliseconds."""

from __future__ import annotations

import pytest

from perdure.codecs.times import iso_time, time_of


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_775_000_000_005, "2026-03-31T23:33:20.005Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
    ],
)
def test_time_is_written_with_milliseconds_and_read_back(at: int, text: str) -> None:
    assert iso_time(at) == text
    assert time_of(text) == at


def test_time_outside_the_calendar_is_written_as_1970() -> None:
    assert iso_time(2**53) == "1970-01-01T00:00:00.000Z"


def test_invalid_time_is_read_as_none_and_time_without_offset_as_utc() -> None:
    assert time_of("yesterday") is None
    assert time_of("1970-01-01T00:00:01") == 1_000
    assert time_of("1970-01-01T01:00:00+01:00") == 0
