"""Find the time that a question names, such as "in May 2023", "last week" or "2022-03-01"."""

from __future__ import annotations

import calendar
import re
from datetime import date
from math import exp
from typing import NamedTuple

from perdure.session.clock import moment_of
from perdure.session.search.words import terms

_MONTHS = (
    ("january", "jan", "januar", "janner", "janvier", "enero", "gennaio", "janeiro", "januari"),
    ("february", "feb", "februar", "fevrier", "febrero", "febbraio", "fevereiro", "februari"),
    ("march", "mar", "marz", "mars", "marzo", "marco", "maart"),
    ("april", "apr", "avril", "abril", "aprile"),
    ("may", "mai", "mayo", "maggio", "maio", "mei"),
    ("june", "jun", "juni", "juin", "junio", "giugno", "junho"),
    ("july", "jul", "juli", "juillet", "julio", "luglio", "julho"),
    ("august", "aug", "aout", "agosto", "augustus"),
    ("september", "sep", "sept", "septembre", "septiembre", "settembre", "setembro"),
    ("october", "oct", "oktober", "octobre", "octubre", "ottobre", "outubro"),
    ("november", "nov", "novembre", "noviembre", "novembro"),
    ("december", "dec", "dezember", "decembre", "diciembre", "dicembre", "dezembro"),
)
_MONTH = {name: number for number, names in enumerate(_MONTHS, 1) for name in names}

_ALSO_WORDS = frozenset({"may", "mar", "march", "mars", "jan", "mai", "mei", "jun", "sep", "dec"})
"""Names of months that are also other words; they count only next to a number or preposition."""

_BEFORE_MONTH = frozenset(
    {"in", "of", "since", "during", "until", "by", "last", "this", "next", "early", "late", "mid"}
    | {"im", "seit", "bis", "en", "de", "depuis", "nel", "di", "em", "do"}
)

_ISO = re.compile(r"\b((?:1\d|20)\d\d)-(\d\d?)(?:-(\d\d?))?\b")
_TOKEN = re.compile(r"[^\W_]+")

_AGO_DAYS = {
    "today": (0, 1), "heute": (0, 1), "aujourd": (0, 1), "hoy": (0, 1), "oggi": (0, 1),
    "yesterday": (1, 1), "gestern": (1, 1), "hier": (1, 1), "ayer": (1, 1), "ieri": (1, 1),
    "ontem": (1, 1), "vorgestern": (2, 1),
}  # fmt: skip
_LAST = frozenset(
    {"last", "past", "letzte", "letzten", "letztes", "letzter"}
    | {"pasada", "pasado", "derniere", "dernier"}
)
_SPANS = {
    "week": 7, "woche": 7, "semana": 7, "semaine": 7, "settimana": 7,
    "month": 31, "monat": 31, "mes": 31, "mois": 31, "mese": 31,
    "year": 366, "jahr": 366, "ano": 366, "an": 366, "annee": 366, "anno": 366,
}  # fmt: skip


class Period(NamedTuple):
    """A span of days. If `year` is None, the period is a month or a day of any year.

    Units: `first` and `last` are ordinals of days (`date.toordinal`); `last` is included.
    """

    first: int
    last: int
    is_any_year: bool = False

    def closeness(self, at: int) -> float:
        """Return 1.0 for a time within the period, and less for a time outside of the period.

        Before the period, the closeness falls by the factor e for each 3.3 days of distance. After
        the period, the closeness falls more slowly, by the factor e for each ten days, because a
        later session can still mention the period.
        Units: `at` is Unix milliseconds.
        """
        day = moment_of(at).date()
        if not self.is_any_year:
            return _closeness(day.toordinal(), self.first, self.last)
        return max(_closeness(day.toordinal(), *self._in(year)) for year in _years(day))

    def _in(self, year: int) -> tuple[int, int]:
        first, last = date.fromordinal(self.first), date.fromordinal(self.last)
        length = calendar.monthrange(year, last.month)[1]
        return (
            first.replace(year=year, day=min(first.day, length)).toordinal(),
            last.replace(year=year, day=min(last.day, length)).toordinal(),
        )


def period_of(question: str, now: int) -> Period | None:
    """Return the time that `question`, asked at `now`, names; None if it names no time."""
    found = _ISO.search(question)
    if found:
        year, month, day = (int(each) if each else None for each in found.groups())
        if year and month and 1 <= month <= 12:
            return _period(year, month, day)
    tokens = _tokens(question)
    return _named(tokens) or _relative(tokens, moment_of(now).date())


def _tokens(question: str) -> list[tuple[str, bool]]:
    """Return each folded word of the question, with True if the word is capitalized."""
    found: list[tuple[str, bool]] = []
    for token in _TOKEN.findall(question):
        found += [(term, token[0].isupper()) for term in terms(token)]
    return found


def _named(tokens: list[tuple[str, bool]]) -> Period | None:
    for index, (word, is_capital) in enumerate(tokens):
        month = _MONTH.get(word)
        if month is None:
            continue
        before = tokens[index - 1][0] if index else ""
        earlier = tokens[index - 2][0] if index > 1 else ""
        after = [token for token, _ in tokens[index + 1 : index + 4]]
        day = _day(before) or (_day(earlier) if before in ("of", "de") else None)
        if day is None and after:
            day = _day(after[0])
        year = next((int(token) for token in after if _is_year(token)), None)
        is_sure = word not in _ALSO_WORDS or (is_capital and (before in _BEFORE_MONTH))
        if is_sure or day or (year and is_capital):
            return _period(year, month, day)
    year = next((int(word) for word, _ in tokens if _is_year(word)), None)
    return None if year is None else _period(year, None, None)


def _relative(tokens: list[tuple[str, bool]], today: date) -> Period | None:
    words = [word for word, _ in tokens]
    for index, word in enumerate(words):
        if word in _AGO_DAYS:
            ago, length = _AGO_DAYS[word]
            return _ending(today, ago, length)
        beside = {*words[max(index - 1, 0) : index], *words[index + 1 : index + 2]}
        if word in _SPANS and beside & _LAST:
            return _ending(today, 0, 2 * _SPANS[word])
        if word == "ago" and index >= 2 and words[index - 2].isdigit():
            unit = _SPANS.get(words[index - 1].rstrip("s"), 1 if "day" in words[index - 1] else 0)
            if unit:
                return _ending(today, int(words[index - 2]) * unit, max(unit // 2, 1))
    return None


def _ending(today: date, days_ago: int, length: int) -> Period | None:
    last = today.toordinal() - days_ago
    return Period(max(last - length + 1, 1), last) if last >= 1 else None


def _period(year: int | None, month: int | None, day: int | None) -> Period:
    """Return the period of an incomplete date; at least its year or its month is known."""
    first_month, last_month = (1, 12) if month is None else (month, month)
    of_year = year or 2000  # a leap year
    length = calendar.monthrange(of_year, last_month)[1]
    first = date(of_year, first_month, min(day or 1, length)).toordinal()
    last = date(of_year, last_month, min(day or length, length)).toordinal()
    return Period(first, last, is_any_year=year is None)


def _closeness(day: int, first: int, last: int) -> float:
    if day < first:
        return exp(-3 * (first - day) / 10)
    return 1.0 if day <= last else exp(-(day - last) / 10)


def _years(day: date) -> list[int]:
    return [year for year in (day.year - 1, day.year, day.year + 1) if 1 <= year <= 9999]


def _day(word: str) -> int | None:
    number = word.removesuffix("st").removesuffix("nd").removesuffix("rd").removesuffix("th")
    return int(number) if number.isdigit() and 1 <= int(number) <= 31 else None


def _is_year(word: str) -> bool:
    return len(word) == 4 and word.isdigit() and "1000" <= word < "2100"
