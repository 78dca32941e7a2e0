from __future__ import annotations

import pytest

from perdure.apps.terminal.costs import cost_text
from perdure.session.messages import Usage
from perdure.session.records import UsageTotal


@pytest.mark.parametrize(
    ("microcents", "calls", "unpriced", "text"),
    [
        (0, 2, 0, "$0.00"),
        (5_000, 1, 0, "$0.0001"),
        (19_494_999, 3, 0, "$0.1949"),
        (3_033_499_999, 3, 1, "$30.33+"),
        (None, 2, 2, "?"),
        (None, 0, 0, "$0.00"),
    ],
)
def test_unknown_price_is_marked_in_the_printed_cost(
    microcents: int | None, calls: int, unpriced: int, text: str
) -> None:
    total = UsageTotal("x", calls, Usage(1, 1, cost_microcents=microcents), unpriced, 1)
    assert cost_text(total) == text
