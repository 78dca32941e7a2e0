"""What pi and Operator have alike."""

from __future__ import annotations

import pytest

from perdure.codecs.alike import data_of, dollars, microcents_in, title_in
from perdure.session.messages import Usage
from perdure.session.notes import SessionInfoChanged


def test_costs_are_written_in_dollars_and_one_nobody_knows_as_nothing() -> None:
    assert dollars(Usage(1, cost_microcents=150_000_000)) == 1.5
    assert dollars(Usage(1)) == 0


@pytest.mark.parametrize(
    ("total", "microcents"), [(1.5, 150_000_000), (0, 0), (-1, None), (10**7, None), ("1", None)]
)
def test_what_no_call_can_cost_is_no_cost(total: object, microcents: int | None) -> None:
    assert microcents_in({"total": total}) == microcents


def test_a_body_that_is_no_json_is_carried_as_base64() -> None:
    assert data_of(b'{"a":1}') == {"a": 1}
    assert data_of(b"\xff") == {"base64": "/w=="}


def test_a_name_of_spaces_is_no_title() -> None:
    assert title_in({"name": " a b "}) == SessionInfoChanged(title="a b")
    assert title_in({"name": "  "}) == title_in({}) == SessionInfoChanged()
