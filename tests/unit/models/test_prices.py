"""Costs in whole micro-cents: which price source is used, and calls without a price."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.prices import CostCalculator, Price, dollars, unpriced
from perdure.session.messages import Usage

MODEL = "p:m"
counts = st.integers(0, 10**9)
usages = st.builds(Usage, counts, counts, counts, counts)


class Listed:
    """A client with a list of one price."""

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        return 7 if model == MODEL else None


@pytest.mark.parametrize(
    ("amount", "microcents"),
    [("1.50", 150_000_000), (0.1, 10_000_000), (Decimal("0.00000001"), 1), (0, 0), (3, 3 * 10**8)],
)
def test_conversion_of_dollars_to_microcents_is_exact(
    amount: str | float | Decimal, microcents: int
) -> None:
    assert dollars(amount) == microcents


@pytest.mark.parametrize("amount", ["free", "-1", "inf", "nan", ""])
def test_invalid_amount_is_rejected(amount: str) -> None:
    with pytest.raises(ValueError, match=r"amount|nothing"):
        dollars(amount)


def test_price_of_cache_writes_defaults_to_the_input_price() -> None:
    price = Price(dollars(3), dollars(15), cache_read=dollars("0.3"))
    million = 1_000_000
    assert price.cost_microcents(Usage(million)) == dollars(3)
    assert price.cost_microcents(Usage(output_tokens=million)) == dollars(15)
    assert price.cost_microcents(Usage(cache_read_tokens=million)) == dollars("0.3")
    assert price.cost_microcents(Usage(cache_write_tokens=million)) == dollars(3)


def test_cache_price_of_zero_is_not_replaced_by_the_input_price() -> None:
    price = Price(dollars(3), dollars(15), cache_read=0, cache_write=0)
    cached = Usage(cache_read_tokens=1_000_000, cache_write_tokens=1_000_000)
    assert price.cost_microcents(cached) == 0


def test_negative_price_is_rejected() -> None:
    with pytest.raises(ValueError, match="from 0 as output, not -1"):
        Price(1, -1)


@given(usages, usages)
def test_cost_is_additive_up_to_rounding(one: Usage, two: Usage) -> None:
    price = Price(123_457, 1_000_003, 11, 13)
    apart = price.cost_microcents(one) + price.cost_microcents(two)
    assert abs(price.cost_microcents(one + two) - apart) <= 1


def test_price_from_settings_is_preferred_to_reported_cost_and_price_list() -> None:
    own = {MODEL: Price(1_000_000, 0), "q:*": Price(2_000_000, 0)}
    reported = Usage(5, cost_microcents=99)
    assert CostCalculator(own, Listed())(MODEL, reported) == 5
    assert CostCalculator(own, Listed())("q:anything", reported) == 10
    assert CostCalculator({}, Listed())(MODEL, reported) == 99
    assert CostCalculator({}, Listed())(MODEL, Usage(5)) == 7
    assert CostCalculator({}, Listed())("p:other", Usage(5)) is None
    assert CostCalculator({}, object())(MODEL, Usage(5)) is None


def test_price_of_zero_differs_from_an_unknown_price() -> None:
    assert CostCalculator({"own:*": Price(0, 0)}, object())("own:m", Usage(5, 5)) == 0
    assert unpriced(MODEL, Usage(5)) is None
    assert unpriced(MODEL, Usage(5, cost_microcents=4)) == 4
