"""Prices are those of the address that was called, or unknown."""

from __future__ import annotations

from pydantic_ai.usage import RequestUsage

from perdure.models.providers.pricing import cost_microcents

OPENAI = "https://api.openai.com/v1/"


def test_a_call_to_openai_has_a_price_in_microcents() -> None:
    million = RequestUsage(input_tokens=1_000_000)
    # 2.50 US dollars for a million tokens of input.
    assert cost_microcents(million, "gpt-4o", OPENAI) == 250_000_000


def test_cached_input_costs_less() -> None:
    cached = RequestUsage(input_tokens=1_000_000, cache_read_tokens=1_000_000)
    cost = cost_microcents(cached, "gpt-4o", OPENAI)
    assert cost is not None
    assert 0 < cost < 250_000_000


def test_a_server_of_ones_own_has_no_price_whatever_its_model_is_called() -> None:
    usage = RequestUsage(input_tokens=1_000)
    assert cost_microcents(usage, "gpt-4o", "http://127.0.0.1:8000/v1/") is None


def test_an_unknown_model_has_no_price() -> None:
    assert cost_microcents(RequestUsage(input_tokens=1), "no-such-model", OPENAI) is None


def test_usage_that_contradicts_itself_has_no_price() -> None:
    odd = RequestUsage(input_tokens=1, cache_read_tokens=1_000)
    assert cost_microcents(odd, "gpt-4o", OPENAI) is None
