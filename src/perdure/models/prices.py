"""Compute the cost of model calls from the first source of prices that knows the model.

All money is whole micro-cents (1e-8 US dollars), so sums are exact. The cost of a model without a
price is None, never 0. This module makes no network request, because the prices come from the user,
from the provider's answer, or from the local list of a `Pricing` client.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Annotated, Protocol, runtime_checkable

from msgspec import Meta

from perdure.bounds.short_repr import ShortRepr
from perdure.errors import WrongArgument
from perdure.models.catalogue import require_model_name
from perdure.session.argument_checks import NamedParameters, check_fields, takes_declared
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage

_TOKENS = 1_000_000

Cost = Callable[[str, Usage], int | None]
"""Returns the cost of `usage` of a model (``provider:name``) in micro-cents; None if unknown."""


@takes_declared
def dollars(amount: str | float | Decimal) -> int:
    """Convert `amount` US dollars to micro-cents; amounts as text or Decimal are exact.

    Raises: WrongArgument if `amount` is negative or not an amount.
    """
    try:
        exact = Decimal(str(amount)) * MICROCENTS_PER_DOLLAR
        whole = int(exact.to_integral_value())
    except (ArithmeticError, ValueError) as error:
        raise WrongArgument(f"{amount!r:.40} is no amount of dollars") from error
    if whole < 0:
        raise WrongArgument(f"{amount!r:.40} is less than nothing")
    return whole


MicrocentsPerMillion = Annotated[int, Meta(ge=0)]


class Price(ShortRepr, frozen=True, metaclass=NamedParameters):
    """The price of a model per million tokens, as in price lists.

    Units: the prices are micro-cents per million tokens (`dollars` converts to micro-cents). Cached
    tokens without a separate price cost as much as other input.
    """

    input: MicrocentsPerMillion
    output: MicrocentsPerMillion
    cache_read: MicrocentsPerMillion | None = None
    cache_write: MicrocentsPerMillion | None = None

    def __post_init__(self) -> None:
        check_fields(self)

    def cost_microcents(self, usage: Usage) -> int:
        """Return the cost of `usage`, rounded to the nearest micro-cent."""
        read = self.input if self.cache_read is None else self.cache_read
        written = self.input if self.cache_write is None else self.cache_write
        total = (
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * written
        )
        return (total + _TOKENS // 2) // _TOKENS


@runtime_checkable
class Pricing(Protocol):
    """A model client that knows the prices of its models."""

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        """Return the cost of `usage` of `model`; None if unknown. Sends no network request."""
        ...


def own_price(prices: Mapping[str, Price], model: str) -> Price | None:
    """Return the user's price of `model`, or else the price that the user set for its provider."""
    return prices.get(model) or prices.get(f"{model.partition(':')[0]}:*")


class CostCalculator:
    """A `Cost` that uses the first known price.

    The user's prices come first, then the cost that a call reported, then the client's price list.
    The keys of `prices` are ``provider:name``, or ``provider:*`` for every other model of a
    provider.
    Raises: WrongArgument if a key is not a valid model name.
    """

    def __init__(self, prices: Mapping[str, Price], client: object) -> None:
        for model in prices:
            require_model_name(model, "prices")
        self._prices = dict(prices)
        self._list = client if isinstance(client, Pricing) else None

    def __call__(self, model: str, usage: Usage) -> int | None:
        own = own_price(self._prices, model)
        if own is not None:
            return own.cost_microcents(usage)
        if usage.cost_microcents is not None:
            return usage.cost_microcents
        return None if self._list is None else self._list.cost_microcents(model, usage)


def unpriced(model: str, usage: Usage) -> int | None:
    """Return only the cost that the provider reported for a call; this function is a `Cost`."""
    return usage.cost_microcents


def in_dollars(microcents: int) -> str:
    """Return an amount as a text for people, such as ``$1.50`` or ``$0.000123``."""
    whole, rest = divmod(microcents, MICROCENTS_PER_DOLLAR)
    digits = f"{rest:08d}".rstrip("0").ljust(2, "0")
    return f"${whole:,}.{digits}"
