"""Formats costs as text for people."""

from __future__ import annotations

from perdure.models.prices import in_dollars
from perdure.session.messages import MICROCENTS_PER_DOLLAR
from perdure.session.records import UsageTotal


def cost_text(total: UsageTotal) -> str:
    """Return the cost as text; ``+`` means that calls without a known price are not included."""
    cost = total.usage.cost_microcents or 0
    if total.unpriced_calls == total.calls > 0:
        return "?"
    shown = rounded_dollars(cost)
    return f"{shown}+" if total.unpriced_calls else shown


def rounded_dollars(cost: int) -> str:
    """Format micro-cents in dollars, rounded to cents.

    A cost below one dollar is rounded to hundredths of a cent.
    """
    step = MICROCENTS_PER_DOLLAR // (100 if cost >= MICROCENTS_PER_DOLLAR else 10_000)
    return in_dollars((cost + step // 2) // step * step)
