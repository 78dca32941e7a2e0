"""List prices against the list itself."""

from __future__ import annotations

import random

import genai_prices
import pytest

from perdure.models.price_list import PriceList
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage

MODELS = (
    "anthropic:claude-opus-4-5-20251101",
    "anthropic:claude-sonnet-4-5",  # dearer above 200,000 tokens
    "openai:gpt-5",
    "openai:gpt-5-codex",
    "google:gemini-2.5-pro",  # dearer above 200,000 tokens
    "openrouter:anthropic/claude-sonnet-4.5",
)


@pytest.mark.parametrize("model", MODELS)
def test_cost_is_that_of_the_list_for_any_usage(model: str) -> None:
    dice = random.Random(model)
    provider, _, name = model.partition(":")
    for size in (10, 1_000, 100_000, 200_000, 1_000_000):
        for _ in range(5):
            fresh, read, written, out = (dice.randrange(size) for _ in range(4))
            used = genai_prices.Usage(
                input_tokens=fresh + read + written,
                cache_read_tokens=read,
                cache_write_tokens=written,
                output_tokens=out,
            )
            listed = genai_prices.calc_price(used, name, provider_id=provider).total_price
            cost = PriceList().cost_microcents(model, Usage(fresh, out, read, written))
            assert cost is not None
            assert abs(cost - listed * MICROCENTS_PER_DOLLAR) <= 1


@pytest.mark.parametrize("model", ["scripted:echo", "anthropic:nothing", "nobody:claude", "x", ""])
def test_model_that_is_not_listed_has_no_price(model: str) -> None:
    assert PriceList().cost_microcents(model, Usage(10, 10)) is None
