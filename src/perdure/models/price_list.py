"""The public list prices of models, from a package that comes with the extra ``models``."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from perdure.models.prices import Price, dollars
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage

_PACKAGE = "genai_prices"
_FIELDS: Mapping[str, str] = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}
"""Field of our price -> the list's name of it."""

_PER_REQUEST = "requests_kcount"


class PriceList:
    """A `Pricing` by provider and model; without the package no model has a price."""

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        """Return the cost of `usage` of `model`; None if the list does not have the model."""
        cost = _cost(model)
        return None if cost is None else cost(usage)


@cache
def _cost(model: str) -> Callable[[Usage], int] | None:
    """Return what prices the calls of `model`, looked up once."""
    provider, _, name = model.partition(":")
    if not name or importlib.util.find_spec(_PACKAGE) is None:
        return None
    # Imported lazily: it takes longer to load than most commands take to run.
    prices: Any = importlib.import_module(_PACKAGE)

    def listed(usage: Usage) -> Any:
        cached = usage.cache_read_tokens + usage.cache_write_tokens
        used = prices.Usage(  # the list counts cached tokens as input, too
            input_tokens=usage.input_tokens + cached,
            cache_read_tokens=usage.cache_read_tokens,
            cache_write_tokens=usage.cache_write_tokens,
            output_tokens=usage.output_tokens,
        )
        return prices.calc_price(used, name, provider_id=provider)

    def exact(usage: Usage) -> int:
        return round(listed(usage).total_price * MICROCENTS_PER_DOLLAR)

    try:
        found: Mapping[str, Any] = listed(Usage(1, 1)).model_price.__dict__
        price, most = _base_price(found)
    except (LookupError, ValueError):
        return None
    if price is None:
        return exact
    base = price.cost_microcents  # the list itself takes a quarter of a millisecond for each call
    return lambda usage: base(usage) if _sent(usage) <= most else exact(usage)


def _sent(usage: Usage) -> int:
    return usage.total_tokens - usage.output_tokens


def _base_price(listed: Mapping[str, Any]) -> tuple[Price | None, float]:
    """Return a listed price as ours, and how many tokens a call of that price may send.

    None for a price that calls have besides their tokens.
    """
    found = {field: listed.get(name) for field, name in _FIELDS.items()}
    amounts = {field: each for field, each in found.items() if each is not None}
    if listed.get(_PER_REQUEST) is not None or not {"input", "output"} <= amounts.keys():
        return None, 0
    starts = [tier.start for each in amounts.values() for tier in getattr(each, "tiers", ())]
    prices = {field: dollars(getattr(each, "base", each)) for field, each in amounts.items()}
    return Price(**prices), min(starts, default=math.inf)
