"""Moments as a person types them."""

from __future__ import annotations

from datetime import datetime

import pytest
import typer

from perdure.apps.cli.moments import moment, typed_moment

NOW = datetime.fromisoformat("2026-11-23T18:30:15")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("2026-11-21", "2026-11-21T00:00:00"),
        ("2026-11-21T09:30", "2026-11-21T09:30:00"),
        ("2026-11-21 09:30:05", "2026-11-21T09:30:05"),
        ("2026-11-21T09:30:00+02:00", "2026-11-21T09:30:00+02:00"),
        ("today", "2026-11-23T00:00:00"),
        ("Yesterday", "2026-11-22T00:00:00"),
        ("7d", "2026-11-16T18:30:15"),
        ("2w ago", "2026-11-09T18:30:15"),
        ("90m", "2026-11-23T17:00:15"),
        (" 12h ", "2026-11-23T06:30:15"),
    ],
)
def test_typed_moment_is_seen_from_now(typed: str, meant: str) -> None:
    assert moment(typed, NOW).isoformat() == meant


@pytest.mark.parametrize("typed", ["", "soon", "7", "d", "-7d", "7.5d", "999999w", "2026-13-01"])
def test_other_words_are_refused_with_the_valid_forms(typed: str) -> None:
    with pytest.raises(typer.BadParameter, match="yesterday, 7d"):
        moment(typed, NOW)


def test_day_begins_at_local_midnight() -> None:
    assert typed_moment("today").hour == 0
    assert typed_moment("today").tzinfo is None
