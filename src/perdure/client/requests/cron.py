"""Messages that an agent receives repeatedly, at the times of a cron expression.

An expression has five fields: minute, hour, day of the month, month, day of the week. A field is
``*``, numbers, ranges ``a-b`` and steps ``/n``, joined by commas; months and days of the week also
have English names. If an expression restricts both the day of the month and the day of the week, a
time matches if one of the two matches, as in cron.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Annotated
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import WrongArgument
from perdure.session.argument_checks import NamedParameters, check_fields
from perdure.session.clock import moment_of, ms_of

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS = (
    # name, first, last, names of the values
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of the month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of the week", 0, 7, _DAYS),
)
_YEARS = 9
"""Number of years that are searched: two leap days can be eight years apart."""


class Recurring(ShortRepr, frozen=True, metaclass=NamedParameters):
    """A message that starts a new session at each time of `cron`, in the zone `timezone`.

    Raises: WrongArgument for an expression that is invalid or never matches, an unknown zone, and
    an empty message.
    """

    cron: Annotated[str, Meta(description="minute, hour, day of month, month, day of week.")]
    message: Annotated[str, Meta(min_length=1, description="What the agent is sent each time.")]
    timezone: Annotated[str, Meta(description="Its clock, for example Europe/Oslo.")] = "UTC"

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.message.strip():
            raise WrongArgument("the message is blank: write a text", argument="message")
        try:
            _zone(self.timezone)
        except (KeyError, ValueError, OSError) as error:  # a folder of zones is an OSError
            raise WrongArgument(
                f"unknown time zone {self.timezone!r:.60}: use a name such as Europe/Oslo, or UTC",
                argument="timezone",
            ) from error
        self.next_after(0)

    @property
    def key(self) -> str:
        """A short name of this recurring message; equal messages and times give the same name."""
        content = msgspec.json.encode((self.cron, self.message, self.timezone))
        return hashlib.blake2b(content, digest_size=4).hexdigest()

    def next_after(self, at: int) -> int:
        """Return the first time after `at`. Units: Unix milliseconds.

        If the clock shows a time twice, only the first occurrence counts. A time that the clock
        skips is moved forward by the length of the skipped interval.
        Raises: WrongArgument if no time after `at` matches.
        """
        zone = _zone(self.timezone)
        minutes, hours, *days = _fields(self.cron)
        for day in _days_from(moment_of(at).astimezone(zone).date() - timedelta(days=1)):
            if not _is_on(day, self.cron, days):
                continue
            local = (
                datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                for hour in hours
                for minute in minutes
            )
            later = [found for each in local if (found := ms_of(each.astimezone(UTC))) > at]
            if later:
                return min(later)
        raise WrongArgument(f"the cron expression {self.cron!r} never matches", argument="cron")


@functools.lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _days_from(first: date) -> Iterator[date]:
    return (first + timedelta(days=count) for count in range(_YEARS * 366))


def _is_on(day: date, cron: str, fields: list[tuple[int, ...]]) -> bool:
    of_month, months, of_week = fields
    if day.month not in months:
        return False
    _, _, month_text, _, week_text = cron.split()
    in_month, in_week = day.day in of_month, day.isoweekday() % 7 in of_week
    if month_text.startswith("*") or week_text.startswith("*"):
        return in_month and in_week
    return in_month or in_week


@functools.lru_cache(maxsize=256)
def _fields(cron: str) -> tuple[tuple[int, ...], ...]:
    """Return the values of each field, in order. Raises: WrongArgument."""
    texts = cron.split()
    if len(texts) != len(_FIELDS):
        raise WrongArgument(
            f"the cron expression {cron!r:.80} needs 5 fields and has {len(texts)}: minute, hour, "
            'day of the month, month, day of the week, for example "0 9 * * mon-fri"',
            argument="cron",
        )
    found: list[tuple[int, ...]] = []
    for text, (name, first, last, names) in zip(texts, _FIELDS, strict=True):
        values: set[int] = set()
        for part in text.split(","):
            chosen = _values(part, first, last, names)
            if chosen is None:
                raise WrongArgument(
                    f"{part!r:.40} is not a {name} from {first} to {last} in the cron expression "
                    f"{cron!r:.80}: use *, a number, a-b, or one of these with /n",
                    argument="cron",
                )
            values.update(chosen)
        found.append(tuple(sorted({0 if names is _DAYS and v == 7 else v for v in values})))
    return tuple(found)


def _values(part: str, first: int, last: int, names: tuple[str, ...]) -> range | None:
    """Return the values that one part of a field allows; None if the part is invalid."""
    span, slash, step_text = part.partition("/")
    step = _number(step_text, ()) if slash else 1
    start_text, dash, end_text = span.partition("-")
    if span == "*":
        start: int | None = first
        end: int | None = last - (names is _DAYS)
    else:
        start = _number(start_text, names)
        end = _number(end_text, names) if dash else last if slash else start
        if names is _DAYS and start and end == 0:  # the Sunday that ends a week
            end = 7
    if start is None or end is None or not step or not first <= start <= end <= last:
        return None
    return range(start, end + 1, step)


def _number(text: str, names: tuple[str, ...]) -> int | None:
    if text.lower() in names:
        return names.index(text.lower()) + (names is _MONTHS)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 2 else None
