"""Tokens and cost of a session, of imported and own calls, as lines for its user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perdure.apps.terminal.output import count_of
from perdure.apps.terminal.text import one_line
from perdure.client.agents.chat import Chat
from perdure.client.session import Session
from perdure.client.store import Store
from perdure.models.prices import Price, in_dollars
from perdure.session.ledger import Spending
from perdure.session.messages import Usage
from perdure.session.records import UsageTotal

_CELLS = 60


async def imported_spending(
    store: Store, session: Session, prices: Mapping[str, Price] | None = None
) -> Spending:
    """Return what the imported messages of `session` cost, as far as the log or `prices` say.

    `Chat.spent` counts only the calls that perdure made. The first call reads the log.
    `prices` as of `Store.usage`.
    """
    if (await session.info()).origin != "import":
        return Spending()
    totals = await store.usage("agent", session=session.id, prices=prices)
    found = [each for each in totals if not each.key]  # a call of perdure names its agent
    cost = sum(each.usage.cost_microcents or 0 for each in found)
    return Spending(cost, sum(each.unpriced_calls for each in found))


async def cost_lines(store: Store, chat: Chat, prices: Mapping[str, Price]) -> list[str]:
    """Return what `chat` cost and the tokens it used; an unknown cost is never 0."""
    spent = await chat.spent() + await imported_spending(store, chat.session, prices)
    models = await store.usage("model", session=chat.session.id, prices=prices)
    return list(_cost_lines(spent, models))


def _cost_lines(spent: Spending, models: Sequence[UsageTotal]) -> Iterator[str]:
    calls = sum(each.calls for each in models)
    if not calls and spent == Spending():
        yield "the log has no tokens and no cost of this session"
        return
    missing = f"{count_of(spent.unpriced_calls, 'call')} without a price"
    if spent.unpriced_calls and not spent.cost_microcents:
        yield f"the cost of this session is unknown: {missing}"
    else:
        more = f", and {missing}" if spent.unpriced_calls else ""
        yield f"this session cost {in_dollars(spent.cost_microcents)}{more}"
    used = sum((each.usage for each in models), Usage())
    sent = used.input_tokens + used.cache_read_tokens + used.cache_write_tokens
    cached = f" ({used.cache_read_tokens:,} of them cached)" if used.cache_read_tokens else ""
    names = ", ".join(one_line(each.key or "unknown model", _CELLS) for each in models)
    yield (
        f"{count_of(calls, 'call')} of {names}: {sent:,} tokens sent{cached}, "
        f"{used.output_tokens:,} received"
    )
    if spent.unpriced_calls:
        yield "prices go into [models.prices] of your settings: `perdure config path`"
