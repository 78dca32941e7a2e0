"""The format of timestamps."""

from __future__ import annotations

import pytest

from perdure.session.clock import minute, timestamp


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**53, "9999-12-31T23:59:59.999Z"),
        (-(2**53), "0001-01-01T00:00:00.000Z"),
    ],
)
def test_any_time_is_formatted_as_iso_with_milliseconds(at: int, told: str) -> None:
    assert timestamp(at) == told


@pytest.mark.parametrize(
    ("at", "told"),
    [(0, "1970-01-01 00:00"), (10**30, "9999-12-31 23:59"), (-(10**30), "0001-01-01 00:00")],
)
def test_any_time_is_formatted_to_the_minute(at: int, told: str) -> None:
    assert minute(at) == told
