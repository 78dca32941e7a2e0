"""Limits and their defaults."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns.config import (
    MAX_CORRECTABLE_ROUNDS,
    MAX_TOOL_ROUNDS,
    MAX_TURNS,
    Limits,
)


@pytest.mark.parametrize("none", [0, -1])
def test_missing_limit_gets_its_default(none: int) -> None:
    assert Limits(none, none, none) == Limits(MAX_TURNS, MAX_TOOL_ROUNDS, MAX_CORRECTABLE_ROUNDS)


def test_given_limit_is_not_replaced_by_the_default() -> None:
    assert Limits(max_turns=3, max_tool_rounds=0).max_turns == 3


def test_unset_limits_keep_the_values_of_the_agent() -> None:
    agent = Limits(max_turns=3, max_tool_rounds=2)
    assert Limits(max_turns=10_000).over(agent) == Limits(max_turns=10_000, max_tool_rounds=2)
    assert Limits(max_tool_rounds=0).over(agent) == agent


def test_limits_are_restored_from_a_snapshot() -> None:
    limits = Limits(max_turns=7)
    assert msgspec.convert(msgspec.to_builtins(limits), Limits) == limits
