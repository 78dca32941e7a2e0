"""The services of a turn: its claim, token estimates, random numbers and parked providers."""

from __future__ import annotations

from pathlib import Path

from perdure.context.tokens import estimate_request
from perdure.engine.turns.environment import Cooldowns, Environment, PersonWaits, Scales
from perdure.models.protocol import ModelRequest
from perdure.session.ids import StreamId
from perdure.session.messages import Usage, user
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
        scales=Scales(),
        lease_ttl_ms=77,
    )


def test_lease_claim_has_the_configured_owner_and_duration() -> None:
    claim = environment(Stage()).claim
    assert (claim.owner, claim.ttl_ms, claim.stream) == ("here", 77, "s")
    assert not claim.is_gone("anybody")


def test_estimates_are_corrected_by_reported_usage() -> None:
    scales = Scales()
    request = ModelRequest("p:m", (user("x" * 4000),))
    before, unscaled = estimate_request(request, scales.of("p:m")), estimate_request(request)
    for _ in range(20):
        scales.learn(
            "p:m", unscaled, Usage(input_tokens=1500, cache_read_tokens=500, output_tokens=999)
        )
    after = estimate_request(request, scales.of("p:m"))
    assert abs(after - 2000) < abs(before - 2000) / 10
    assert scales.of("another") == 1.0


def test_random_number_is_from_0_to_1() -> None:
    made = environment(Stage())
    chances = [made.random01() for _ in range(50)]
    assert all(0 <= chance < 1 for chance in chances)
    assert len(set(chances)) > 40


def test_provider_is_paused_until_the_latest_reported_time() -> None:
    cooldowns = Cooldowns()
    cooldowns.learn({"p": 30, "q": 10})
    cooldowns.learn({"p": 20})
    assert cooldowns.open_at(9) == {"p": 30, "q": 10}
    assert cooldowns.open_at(10) == {"p": 30}
    assert cooldowns.open_at(30) == {}


async def test_nested_waits_for_a_person_are_counted() -> None:
    waits = PersonWaits()
    a, b = StreamId("a"), StreamId("b")
    before = waits.change()
    with waits.waiting((a, b)):
        assert before.done()
        within = waits.change()
        with waits.waiting((a,)):
            pass
        assert within.done()
        assert (waits.is_waiting(a), waits.is_waiting(b)) == (True, True)
    assert (waits.is_waiting(a), waits.is_waiting(b)) == (False, False)
    assert not waits.change().done()
