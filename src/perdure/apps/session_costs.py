"""Reports tokens and cost of a session, including imported calls, as lines for people."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.apps.settings.layers import Configuration
from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import one_line
from perdure.bounds.user_folders import user_folder
from perdure.client.clock import SystemClock
from perdure.client.conversation.lineage import children_of
from perdure.client.store import Store
from perdure.models.price_list import kept_prices
from perdure.models.prices import Price, in_dollars
from perdure.session.clock import moment_of
from perdure.session.ids import StreamId
from perdure.session.ledger import Spending
from perdure.session.messages import Usage
from perdure.session.records import UsageTotal

if TYPE_CHECKING:
    from perdure.client.agents.chat import Chat

_CELLS = 60


@contextmanager
def prices_in_force() -> Generator[dict[str, Price]]:
    """Yield the prices from the settings.

    Prices from the public price list are read from the user's cache folder.
    """
    today = moment_of(SystemClock().now_ms()).date().isoformat()
    with kept_prices(prices_file(os.environ), today):
        yield Configuration(Path(), os.environ).prices


def prices_file(environment: Mapping[str, str]) -> Path:
    """Return the file for downloaded prices, in the user's cache folder."""
    return user_folder("XDG_CACHE_HOME", ".cache", environment) / "prices.json"


def sum_of(found: Sequence[UsageTotal]) -> UsageTotal:
    """Return the sum of all groups.

    The session count of the sum is 0, because a session can be in several groups.
    """
    calls = sum(each.calls for each in found)
    unpriced = sum(each.unpriced_calls for each in found)
    return UsageTotal("total", calls, sum((each.usage for each in found), Usage()), unpriced, 0)


async def uncounted_spending(store: Store, chat: Chat, prices: Mapping[str, Price]) -> Spending:
    """Return the cost that `cost_lines` reports minus the cost in `Chat.spent`.

    `Chat.spent` omits the cost of imported messages, and of calls whose price was unknown when they
    were made. In the result, `unpriced_calls` can be negative. A call counts as -1 if it had no
    price when it was made, but has a price in `prices`. The first call of this function reads the
    whole log; later calls with the same `prices` read only new entries. `prices` has the same
    meaning as in `Store.usage`.
    """
    while True:
        counted = await chat.spent()
        total = _spending_of(await _totals(store, chat.id, prices))
        if await chat.spent() == counted:  # no call ended meanwhile
            return Spending(
                total.cost_microcents - counted.cost_microcents,
                total.unpriced_calls - counted.unpriced_calls,
            )


async def cost_lines(store: Store, session: StreamId, prices: Mapping[str, Price]) -> list[str]:
    """Return cost and tokens of `session` and the agents it invoked, as in `perdure usage`.

    An unknown cost is reported as unknown, not as 0. `prices` has the same meaning as in
    `Store.usage`.
    """
    return list(_cost_lines(await _totals(store, session, prices)))


async def _totals(store: Store, session: StreamId, prices: Mapping[str, Price]) -> list[UsageTotal]:
    """Return the usage of `session` and of the agents it invoked, by model."""
    totals: list[UsageTotal] = []
    waiting = [session]
    while waiting:
        at = waiting.pop()
        totals += await store.usage("model", session=at, prices=prices)
        waiting += [child.info.id for child in await children_of(store.backend, at)]
    return totals


def _spending_of(totals: Sequence[UsageTotal]) -> Spending:
    cost = sum(each.usage.cost_microcents or 0 for each in totals)
    return Spending(cost, sum(each.unpriced_calls for each in totals))


def _cost_lines(models: Sequence[UsageTotal]) -> Iterator[str]:
    calls = sum(each.calls for each in models)
    if not calls:
        yield "the log has no tokens and no cost of this session"
        return
    spent = _spending_of(models)
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
