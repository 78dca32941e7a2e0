"""The period of time that a question mentions."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.memory.dates import period_of

NOW = int(datetime(2026, 11, 23, 9, tzinfo=UTC).timestamp() * 1000)


def ms(year: int, month: int, day: int) -> int:
    return int(datetime(year, month, day, 12, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("question", "first", "last"),
    [
        ("What happened in May 2023?", (2023, 5, 1), (2023, 5, 31)),
        ("Where was he on 7 May 2023?", (2023, 5, 7), (2023, 5, 7)),
        ("Where was he on May 7th, 2023?", (2023, 5, 7), (2023, 5, 7)),
        ("Who came on the 3rd of June 2024?", (2024, 6, 3), (2024, 6, 3)),
        ("What did she do in 2022?", (2022, 1, 1), (2022, 12, 31)),
        ("What about 2024-02-30?", (2024, 2, 29), (2024, 2, 29)),
        ("What about 2024-02?", (2024, 2, 1), (2024, 2, 29)),
        ("Was geschah im März 2021?", (2021, 3, 1), (2021, 3, 31)),
        ("¿Qué pasó el 4 de julio de 2020?", (2020, 7, 4), (2020, 7, 4)),
        ("What did we say yesterday?", (2026, 11, 22), (2026, 11, 22)),
        ("What did we decide last week?", (2026, 11, 10), (2026, 11, 23)),
    ],
)
def test_time_period_in_a_question_is_recognized(
    question: str, first: tuple[int, int, int], last: tuple[int, int, int]
) -> None:
    period = period_of(question, NOW)
    assert period is not None
    assert date.fromordinal(period.first) == date(*first)
    assert date.fromordinal(period.last) == date(*last)


@pytest.mark.parametrize(
    "question",
    [
        "May I go?",
        "They march on.",
        "What did he pay for 300 boats?",
        "",
        "Dec the halls",
        "an 5 x",
    ],
)
def test_question_without_a_time_expression_has_no_period(question: str) -> None:
    assert period_of(question, NOW) is None


def test_closeness_to_a_period_decreases_with_the_distance_in_time() -> None:
    period = period_of("in May 2023", NOW)
    assert period is not None
    assert period.closeness(ms(2023, 5, 1)) == period.closeness(ms(2023, 5, 31)) == 1.0
    after, before = period.closeness(ms(2023, 6, 10)), period.closeness(ms(2023, 4, 21))
    assert after == pytest.approx(2.718281828**-1)
    assert before == pytest.approx(2.718281828**-3)


def test_month_without_year_matches_that_month_of_every_year() -> None:
    period = period_of("What happened in December?", NOW)
    assert period is not None
    assert period.closeness(ms(2019, 12, 31)) == period.closeness(ms(2024, 12, 1)) == 1.0
    assert 0.8 < period.closeness(ms(2024, 1, 2)) < 1.0


@given(st.text(max_size=80), st.integers(0, 253_402_300_799_000))
def test_closeness_to_a_period_is_between_zero_and_one(question: str, now: int) -> None:
    period = period_of(question, now)
    if period is not None:
        assert 0 <= period.closeness(now) <= 1
