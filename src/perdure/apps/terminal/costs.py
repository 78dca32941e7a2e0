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
    shown = in_dollars(_rounded(cost))
    return f"{shown}+" if total.unpriced_calls else shown


def _rounded(cost: int) -> int:
    """Round to cents; if the amount is below a dollar, round to hundredths of a cent."""
    step = MICROCENTS_PER_DOLLAR // (100 if cost >= MICROCENTS_PER_DOLLAR else 10_000)
    return (cost + step // 2) // step * step
