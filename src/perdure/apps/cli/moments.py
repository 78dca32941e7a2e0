"""Times as a person types them: dates, times of day, and durations before now."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from perdure.client.clock import SystemClock
from perdure.session.clock import moment_of, ms_of

FORMS = "2026-11-21, 2026-11, 2026-11-21T09:30, today, yesterday, 7d, 12h, 30m or 2w"

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"([0-9]{1,6})([smhdw])(?: ago)?")
_EXACT = re.compile(r"[0-9]+[smh](?: ago)?")
"""Matches durations of fixed length: not days, which have 23 or 25 hours when clocks change."""

_DAYS = {"today": 0, "yesterday": 1, "tomorrow": -1}
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_TIME_OF_DAY = re.compile(r"(today|yesterday|tomorrow)(?: ([0-9]{1,2}):([0-9]{2}))?")

COMING_FORMS = "2026-11-21T09:30, tomorrow 09:30, 30s, 30m, 2h or 7d"


def moment(typed: str, now: datetime) -> datetime:
    """Return the time that `typed` describes, relative to `now`; the default zone is local.

    A date or month means its beginning. ``today 09:30`` means 09:30 on the day of `now`. ``7d``
    means seven days before `now`. Pure.
    Raises: typer.BadParameter if `typed` is no time.
    """
    said = typed.strip().casefold()
    named, span = _TIME_OF_DAY.fullmatch(said), _SPAN.fullmatch(said)
    try:
        if named is not None:
            hour, minute = int(named[2] or 0), int(named[3] or 0)
            day = now - timedelta(days=_DAYS[named[1]])
            return day.replace(hour=hour, minute=minute, second=0, microsecond=0)
        if span is not None:
            return now - timedelta(**{_UNITS[span[2]]: int(span[1])})
        return datetime.fromisoformat(f"{said}-01" if _MONTH.fullmatch(said) else typed.strip())
    except (ValueError, OverflowError):
        raise typer.BadParameter(f"{typed!r:.60} is no date or time: write {FORMS}") from None


def typed_moment(typed: str | datetime) -> datetime:
    """Return the time that the value of an option describes. Raises: typer.BadParameter."""
    if isinstance(typed, datetime):
        return typed
    return moment(typed, _seen_from(typed, moment_of(SystemClock().now_ms())))


def coming_moment(typed: str | datetime) -> datetime:
    """Return the future time that an option describes: ``2h`` is two hours from now.

    Raises: typer.BadParameter if the text is not a time, or if the time has passed.
    """
    if isinstance(typed, datetime):
        return typed
    now = moment_of(SystemClock().now_ms())
    seen_from = _seen_from(typed, now)
    try:
        found = moment(typed, seen_from)
    except typer.BadParameter:
        told = f"{typed!r:.60} is no date or time: write {COMING_FORMS}"
        raise typer.BadParameter(told) from None
    if re.fullmatch("[0-9]+[smhdw]", typed.strip().casefold()):
        found = seen_from + (seen_from - found)
    if found.astimezone() <= now:
        raise typer.BadParameter(f"{typed!r:.60} has passed: write {COMING_FORMS}")
    return found


def _seen_from(typed: str, now: datetime) -> datetime:
    """Return `now` in UTC if `typed` is a duration of fixed length (``12h``), else local time."""
    if _EXACT.fullmatch(typed.strip().casefold()):
        return now.astimezone(UTC)
    return now.astimezone().replace(tzinfo=None)


def _ordered(
    context: typer.Context, parameter: typer.CallbackParam, value: datetime | None
) -> datetime | None:
    """Check that ``--since`` is before ``--until``, and return `value` unchanged.

    Raises: typer.BadParameter if both options are given and the range between them is empty.
    """
    is_since = parameter.name == "since"
    other: datetime | None = context.params.get("until" if is_since else "since")
    if value is None or other is None:
        return value
    since, until = (value, other) if is_since else (other, value)
    if ms_of(since) >= ms_of(until):
        raise typer.BadParameter("no time is between --since and --until: give an earlier --since")
    return value


SinceOption = Annotated[
    datetime | None,
    typer.Option(
        parser=typed_moment,
        callback=_ordered,
        metavar="TIME",
        help="Only what happened since this local date or time: 2026-11-21T09:30, yesterday, 7d.",
    ),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option(
        parser=typed_moment,
        callback=_ordered,
        metavar="TIME",
        help="Only what happened before this local date or time.",
    ),
]
