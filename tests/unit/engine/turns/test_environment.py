"""The outside world as a turn gets it."""

from __future__ import annotations

from pathlib import Path

from perdure.engine.turns.environment import Environment
from perdure.session.ids import StreamId
from perdure.tools.registry import ToolRegistry
from tests.fakes.chats import Stage


def environment(stage: Stage) -> Environment:
    return Environment(
        stream=StreamId("s"),
        store=stage.memory,
        models=stage.models,
        tools=ToolRegistry(),
        clock=stage.clock,
        random=stage.store.outside.random,
        bus=stage.store.bus,
        owner="here",
        working_dir=Path(),
        lease_ttl_ms=77,
    )


def test_a_claim_is_made_under_the_owners_name_and_term() -> None:
    claim = environment(Stage()).claim
    assert (claim.owner, claim.ttl_ms, claim.stream) == ("here", 77, "s")
    assert not claim.is_gone("anybody")


def test_chance_is_a_number_from_0_up_to_1() -> None:
    made = environment(Stage())
    chances = [made.random01() for _ in range(50)]
    assert all(0 <= chance < 1 for chance in chances)
    assert len(set(chances)) > 40
