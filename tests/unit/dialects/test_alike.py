"""What pi and Operator have alike."""

from __future__ import annotations

from perdure.dialects.alike import dollars
from perdure.session.messages import Usage


def test_costs_are_written_in_dollars_and_one_nobody_knows_as_nothing() -> None:
    assert dollars(Usage(1, cost_microcents=150_000_000)) == 1.5
    assert dollars(Usage(1)) == 0
