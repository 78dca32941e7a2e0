"""A heat map of activity: seven rows of days, a column for each week."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from datetime import date, timedelta

from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.style import Style
from perdure.session.records import ActivityTotal

_WEEKS = 53
_DAYS = ("Mon", "", "Wed", "", "Fri", "", "Sun")
_MARGIN = 4
_SHADES = "·░▒▓█"
_PLAIN_SHADES = ".:+*#"


def heat_map(found: Sequence[ActivityTotal], width: int, style: Style) -> Iterator[str]:
    """Return the heat map of the messages per day in `found`, up to the week of the newest day.

    The map covers a year, or as many weeks as fit into `width` cells. The first shade means no
    messages; each other shade covers a quarter of the days. `found` must not be empty.
    """
    counts = {date.fromisoformat(each.key): each.messages for each in found}
    newest = max(counts)
    wide = 2 if width >= _MARGIN + 2 * _WEEKS else 1
    weeks = min(_WEEKS, max((width - _MARGIN) // wide, 1))
    monday = newest - timedelta(days=newest.weekday() + 7 * (weeks - 1))
    shown = {day: count for day, count in counts.items() if day >= monday}
    known = sorted(shown.values())
    shades = _SHADES if style.is_unicode else _PLAIN_SHADES

    yield style.paint(_months(monday, weeks, wide), "faint")
    for row, name in enumerate(_DAYS):
        days = [monday + timedelta(days=row + 7 * week) for week in range(weeks)]
        cells = (" " if day > newest else _shade(shown.get(day, 0), known, shades) for day in days)
        line = "".join(cell.ljust(wide) for cell in cells).rstrip()
        yield f"{style.paint(name.ljust(_MARGIN), 'faint')}{style.paint(line, 'note')}".rstrip()
    total = sum(shown.values())
    said = f"{count_of(total, 'message')} on {count_of(len(shown), 'day')} since {monday}"
    yield f"{said}; most on a day: {known[-1]:,}"
    yield style.paint(f"less {' '.join(shades)} more", "faint")


def _shade(count: int, known: Sequence[int], shades: str) -> str:
    """Return the shade for `count`; the shade for 0 is the first of `shades`.

    If `count` is not 0, its rank among `known` determines the shade.
    """
    levels = len(shades) - 1
    return shades[1 + levels * bisect_left(known, count) // len(known)] if count else shades[0]


def _months(monday: date, weeks: int, wide: int) -> str:
    """Return a line with the name of each month above the month's first whole week."""
    line = " " * _MARGIN
    for week in range(weeks):
        first = monday + timedelta(days=7 * week)
        place = _MARGIN + wide * week
        if first.day <= 7 and len(line) <= place:
            line = f"{line:<{place}}{_MONTHS[first.month - 1]} "
    return line.rstrip()


_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
