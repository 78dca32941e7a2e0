"""A price is known only for the address of the provider that was called."""

from __future__ import annotations

import pytest
from pydantic_ai.usage import RequestUsage

from perdure.models.catalogue import ANTHROPIC_URL, GOOGLE_URL, OPENAI_URL, OPENROUTER_URL
from perdure.models.providers.call import cost_microcents, cost_of
from perdure.session.messages import Usage

OPENAI = "https://api.openai.com/v1/"


def test_call_to_openai_has_a_price_in_microcents() -> None:
    million = RequestUsage(input_tokens=1_000_000)
    # 2.50 US dollars for a million tokens of input.
    assert cost_microcents(million, "gpt-4o", OPENAI) == 250_000_000


@pytest.mark.parametrize(
    ("model", "address"),
    [
        ("claude-haiku-4-5", ANTHROPIC_URL),
        ("gemini-2.5-flash", GOOGLE_URL),
        ("anthropic/claude-sonnet-4.5", OPENROUTER_URL),
        ("gpt-5", OPENAI_URL),
    ],
)
def test_models_of_every_paid_provider_have_a_price(model: str, address: str) -> None:
    million = RequestUsage(input_tokens=1_000_000, output_tokens=1_000_000)
    assert (cost_microcents(million, model, address) or 0) > 100_000_000


def test_each_class_of_tokens_has_a_separate_price() -> None:
    usage = RequestUsage(
        input_tokens=1_000_000, cache_read_tokens=500_000, cache_write_tokens=100_000
    )
    # 400,000 at 1 dollar a million, 500,000 at 0.10, 100,000 at 1.25.
    assert cost_microcents(usage, "claude-haiku-4-5", ANTHROPIC_URL) == 57_500_000


def test_cost_includes_cache_reads_and_writes() -> None:
    usage = Usage(400_000, 0, cache_read_tokens=500_000, cache_write_tokens=100_000)
    assert cost_of(usage, "claude-haiku-4-5", ANTHROPIC_URL) == 57_500_000


def test_cached_input_costs_less() -> None:
    cached = RequestUsage(input_tokens=1_000_000, cache_read_tokens=1_000_000)
    cost = cost_microcents(cached, "gpt-4o", OPENAI)
    assert cost is not None
    assert 0 < cost < 250_000_000


def test_private_server_has_no_price_for_any_model_name() -> None:
    usage = RequestUsage(input_tokens=1_000)
    assert cost_microcents(usage, "gpt-4o", "http://127.0.0.1:8000/v1/") is None


def test_unknown_model_has_no_price() -> None:
    assert cost_microcents(RequestUsage(input_tokens=1), "no-such-model", OPENAI) is None


def test_contradictory_usage_has_no_price() -> None:
    odd = RequestUsage(input_tokens=1, cache_read_tokens=1_000)
    assert cost_microcents(odd, "gpt-4o", OPENAI) is None
