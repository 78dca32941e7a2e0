"""Fields that the records of pi and of Operator share."""

from __future__ import annotations

import pytest

from perdure.codecs.shared_keys import (
    dollars,
    meta_of,
    microcents_in,
    model_name,
    title_in,
    with_meta,
)
from perdure.session.messages import Usage
from perdure.session.notes import SessionInfoChanged


def test_costs_are_in_dollars_and_unknown_cost_is_zero() -> None:
    assert dollars(Usage(1, cost_microcents=150_000_000)) == 1.5
    assert dollars(Usage(1)) == 0


@pytest.mark.parametrize(
    ("total", "microcents"), [(1.5, 150_000_000), (0, None), (-1, None), (10**7, None), ("1", None)]
)
def test_implausible_cost_is_ignored(total: object, microcents: int | None) -> None:
    assert microcents_in({"total": total}) == microcents


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [
        ("openai", "gpt", "openai:gpt"),
        ("unknown", "gpt", "gpt"),
        ("openai", None, "openai"),
        ("unknown", "unknown", None),
    ],
)
def test_model_name_is_built_from_the_known_parts(
    provider: str, model: str | None, name: str | None
) -> None:
    assert model_name(provider, model) == name


def test_meta_of_message_is_written_and_read_back() -> None:
    body = with_meta(b'{"role":"user","parts":[]}', {"reactions": ["+1"]})
    assert meta_of(body) == {"reactions": ["+1"]}
    assert with_meta(b"{}", None) == b"{}"
    assert meta_of(b'{"meta":') == {}


def test_title_of_spaces_is_ignored() -> None:
    assert title_in({"name": " a b "}) == SessionInfoChanged(title="a b")
    assert title_in({"name": "  "}) == title_in({}) == SessionInfoChanged()
