"""The heat map of activity: the positions of the days, and their shades."""

from __future__ import annotations

from perdure.apps.terminal.heat_map import heat_map
from perdure.apps.terminal.style import Style
from perdure.session.records import ActivityTotal


def day(key: str, messages: int) -> ActivityTotal:
    return ActivityTotal(key, messages, 0, 0, 0, 1)


FOUND = [
    day("2026-10-01", 1),  # a Thursday
    day("2026-11-16", 2),  # a Monday
    day("2026-11-22", 40),  # a Sunday
    day("2026-11-24", 500),  # a Tuesday
]


def test_heat_map_has_one_row_per_weekday_and_one_column_per_week() -> None:
    months, *rows, total, legend = heat_map(FOUND, 14, Style(is_unicode=False))
    assert months == "      Oct Nov"
    assert rows == [
        "Mon ........+.",
        "    .........#",
        "Wed .........",
        "    .:.......",
        "Fri .........",
        "    .........",
        "Sun ........*",
    ]
    assert total == "543 messages on 4 days since 2026-09-21; most on a day: 500"
    assert legend == "less . : + * # more"


def test_narrow_activity_map_counts_only_visible_weeks() -> None:
    lines = list(heat_map(FOUND, 5, Style(is_unicode=False)))
    assert lines[-2] == "500 messages on 1 day since 2026-11-23; most on a day: 500"
    assert all(len(line) <= 5 for line in lines[:-2])


def test_wide_activity_map_shows_a_year_with_gaps_between_the_weeks() -> None:
    months, monday, *_ = heat_map(FOUND, 200, Style())
    assert len(monday) == 4 + 2 * 53 - 1
    assert monday.endswith("▒ ·")
    assert months.count("Nov") == 1
