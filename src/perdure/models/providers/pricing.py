"""What models cost, from the price list that comes with the library; it never calls out."""

from __future__ import annotations

from decimal import Decimal

from genai_prices import calc_price
from pydantic_ai.usage import RequestUsage

MICROCENTS_PER_DOLLAR = 100_000_000


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
