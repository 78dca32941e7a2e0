"""The public list prices of models, from a package that comes with the extra ``models``."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec

from perdure.bounds.files import read_named
from perdure.errors import PerdureError
from perdure.models.prices import Price, dollars
from perdure.session.messages import MICROCENTS_PER_DOLLAR, Usage

_PACKAGE = "genai_prices"
_FIELDS: Mapping[str, str] = {
    "input": "input_mtok",
    "output": "output_mtok",
    "cache_read": "cache_read_mtok",
    "cache_write": "cache_write_mtok",
}
"""Maps each field of `Price` to its name in the list."""

_PER_REQUEST = "requests_kcount"


class PriceList:
    """A `Pricing` that uses the price list.

    If the package of the list is missing, no model has a price.
    """

    def cost_microcents(self, model: str, usage: Usage) -> int | None:
        """Return the cost of `usage` of `model`; None if the list does not have the model."""
        cost = _cost(model)
        return None if cost is None else cost(usage)


class ListedPrice(msgspec.Struct, frozen=True):
    """A price from the current list.

    `price` is None if the list does not contain the model. `price` is valid for calls with up to
    `most` tokens; larger calls have the price of another tier. `most` is None if there is no other
    tier.
    """

    price: Price | None = None
    most: int | None = None


class _KeptPrices(msgspec.Struct):
    """Cached prices that were looked up in the list.

    The cached prices are valid for one state of the package and for one day, because prices can
    have dates.
    """

    package: str
    day: str
    models: dict[str, ListedPrice] = {}


_kept = _KeptPrices("", "")


@contextmanager
def kept_prices(file: Path, day: str) -> Generator[None]:
    """Use the prices that `file` caches for `day` during the block; store new prices at the end.

    The cache is useful because loading the list takes longer than the rest of a command. A file
    that cannot be read or written is not an error.
    """
    global _kept  # noqa: PLW0603 - as the limits of input: one for the process
    fresh = _KeptPrices(_package_state(), day)
    _kept = _read_kept(file, fresh)
    _cost.cache_clear()
    before = dict(_kept.models)
    try:
        yield
    finally:
        if _kept.models != before:
            with suppress(OSError):
                file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                new = file.with_name(f"{file.name}.{os.getpid()}.new")
                new.write_bytes(msgspec.json.encode(_kept))
                new.replace(file)
        _kept = _KeptPrices("", "")
        _cost.cache_clear()


def _read_kept(file: Path, fresh: _KeptPrices) -> _KeptPrices:
    try:
        found = msgspec.json.decode(read_named(file), type=_KeptPrices)
    except (OSError, ValueError, PerdureError):
        return fresh
    return found if (found.package, found.day) == (fresh.package, fresh.day) else fresh


def _package_state() -> str:
    """Return a text that changes when the package's price list changes; "" without the package."""
    found = importlib.util.find_spec(_PACKAGE)
    if found is None or found.origin is None:
        return ""
    with suppress(OSError):
        data = Path(found.origin).with_name("data.py").stat()
        return f"{found.origin} {data.st_mtime_ns} {data.st_size}"
    return ""


@cache
def _cost(model: str) -> Callable[[Usage], int] | None:
    """Return a function that computes the cost of calls of `model`; None for an unknown model."""
    if not model.partition(":")[2] or importlib.util.find_spec(_PACKAGE) is None:
        return None
    kept = _kept.models.get(model)
    if kept is None:
        try:
            found: Mapping[str, Any] = _listed(model, Usage(1, 1)).model_price.__dict__
            kept = _base_price(found)
        except (LookupError, ValueError):
            kept = ListedPrice()
        if kept is None:
            return partial(_exact, model)
        if _kept.package:
            _kept.models[model] = kept
    price, most = kept.price, kept.most
    if price is None:
        return None
    # The list itself takes a quarter of a millisecond for each call.
    return lambda usage: (
        price.cost_microcents(usage)
        if most is None or usage.total_tokens - usage.output_tokens <= most
        else _exact(model, usage)
    )


def _listed(model: str, usage: Usage) -> Any:
    """Return the cost that the price list calculates. Raises: LookupError or ValueError."""
    # Imported lazily: it takes longer to load than most commands take to run.
    prices: Any = importlib.import_module(_PACKAGE)
    provider, _, name = model.partition(":")
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    used = prices.Usage(  # the list counts cached tokens as input, too
        input_tokens=usage.input_tokens + cached,
        cache_read_tokens=usage.cache_read_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        output_tokens=usage.output_tokens,
    )
    return prices.calc_price(used, name, provider_id=provider)


def _exact(model: str, usage: Usage) -> int:
    return round(_listed(model, usage).total_price * MICROCENTS_PER_DOLLAR)


def _base_price(listed: Mapping[str, Any]) -> ListedPrice | None:
    """Convert a price from the list; return None if calls cost something besides their tokens."""
    found = {field: listed.get(name) for field, name in _FIELDS.items()}
    amounts = {field: each for field, each in found.items() if each is not None}
    if listed.get(_PER_REQUEST) is not None or not {"input", "output"} <= amounts.keys():
        return None
    starts = [tier.start for each in amounts.values() for tier in getattr(each, "tiers", ())]
    prices = {field: dollars(getattr(each, "base", each)) for field, each in amounts.items()}
    return ListedPrice(Price(**prices), min(starts, default=None))
