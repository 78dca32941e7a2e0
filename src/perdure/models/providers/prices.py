"""What models cost, from the price list that comes with the library; it never calls out."""

from __future__ import annotations

from decimal import Decimal

from genai_prices import calc_price
from pydantic_ai.usage import RequestUsage

from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage


def cost_microcents(usage: RequestUsage, model_name: str, base_url: str) -> int | None:
    """What `usage` costs at the service behind `base_url`; None when nobody knows.

    Only the address says whose prices apply: a server of one's own may serve a model by the name
    that a paid one has elsewhere.
    Units: 1e-8 US dollars.
    """
    try:
        price: Decimal = calc_price(usage, model_name, provider_api_url=base_url).total_price
    except (LookupError, ValueError):
        return None
    return round(price * MICROCENTS_PER_DOLLAR)


def cost_of(usage: Usage, model_name: str, base_url: str) -> int | None:
    """As `cost_microcents`, for a usage of ours: the list wants cached tokens counted as input too.

    Units: 1e-8 US dollars.
    """
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    counted = RequestUsage(
        input_tokens=usage.input_tokens + cached,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
    )
    return cost_microcents(counted, model_name, base_url)
