"""Tokens and cost of a session, of imported and own calls, as lines for its user."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import one_line
from perdure.bounds.user_folders import user_folder
from perdure.client.clock import SystemClock
from perdure.client.conversation.lineage import children_of
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.models.price_list import kept_prices
from perdure.models.prices import Price, in_dollars
from perdure.session.clock import moment_of
from perdure.session.ids import StreamId
from perdure.session.ledger import Spending
from perdure.session.messages import Usage
from perdure.session.records import UsageTotal

_CELLS = 60


@contextmanager
def prices_in_force() -> Generator[dict[str, Price]]:
    """Yield the prices of the settings; prices of the public list are in the user's cache."""
    today = moment_of(SystemClock().now_ms()).date().isoformat()
    with kept_prices(prices_file(os.environ), today):
        yield Configuration(Path(), os.environ).prices


def prices_file(environment: Mapping[str, str]) -> Path:
    """Return the file of downloaded prices, in the user's cache folder."""
    return user_folder("XDG_CACHE_HOME", ".cache", environment) / "prices.json"


def sum_of(found: Sequence[UsageTotal]) -> UsageTotal:
    """Return the sum of all groups; a session may be in several of them."""
    calls = sum(each.calls for each in found)
    unpriced = sum(each.unpriced_calls for each in found)
    return UsageTotal("total", calls, sum((each.usage for each in found), Usage()), unpriced, 0)


async def imported_spending(
    store: Store, session: Session, prices: Mapping[str, Price] | None = None
) -> Spending:
    """Return the cost of the imported messages of `session`, from the log or from `prices`.

    `Chat.spent` counts only the calls that perdure made. The first call reads the log.
    `prices` has the same meaning as in `Store.usage`.
    """
    if (await session.info()).origin != "import":
        return Spending()
    totals = await store.usage("agent", session=session.id, prices=prices)
    found = [each for each in totals if not each.key]  # a call of perdure names its agent
    cost = sum(each.usage.cost_microcents or 0 for each in found)
    return Spending(cost, sum(each.unpriced_calls for each in found))


async def cost_lines(store: Store, session: StreamId, prices: Mapping[str, Price]) -> list[str]:
    """Return the cost and tokens of `session` and its invoked agents, as in `perdure usage`.

    An unknown cost is never 0. `prices` has the same meaning as in `Store.usage`.
    """
    totals: list[UsageTotal] = []
    waiting = [session]
    while waiting:
        at = waiting.pop()
        totals += await store.usage("model", session=at, prices=prices)
        waiting += [child.info.id for child in await children_of(store.backend, at)]
    return list(_cost_lines(totals))


def _cost_lines(models: Sequence[UsageTotal]) -> Iterator[str]:
    calls = sum(each.calls for each in models)
    if not calls:
        yield "the log has no tokens and no cost of this session"
        return
    cost = sum(each.usage.cost_microcents or 0 for each in models)
    spent = Spending(cost, sum(each.unpriced_calls for each in models))
    missing = f"{count_of(spent.unpriced_calls, 'call')} without a price"
    if spent.unpriced_calls and not spent.cost_microcents:
        yield f"the cost of this session is unknown: {missing}"
    else:
        more = f", and {missing}" if spent.unpriced_calls else ""
        yield f"this session cost {in_dollars(spent.cost_microcents)}{more}"
    used = sum_of(models).usage
    sent = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    cached = f" ({used.cache_read_tokens:,} of them cached)" if used.cache_read_tokens else ""
    keys = dict.fromkeys(each.key or "unknown model" for each in models)
    names = ", ".join(one_line(key, _CELLS) for key in keys)
    yield (
        f"{count_of(calls, 'call')} of {names}: {sent:,} tokens sent{cached}, "
        f"{used.output_tokens:,} received"
    )
    if spent.unpriced_calls:
        yield "prices go into [models.prices] of your settings: `perdure config path`"
