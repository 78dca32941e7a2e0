"""The acceptance scenarios of Relavium about budgets and fallbacks, by their numbers."""

from __future__ import annotations

from collections import defaultdict

import pytest

import perdure
from perdure.errors import (
    ConfigError,
    CredentialsRefused,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    TurnFailed,
)
from perdure.models.catalogue import PROVIDERS
from perdure.models.protocol import Delta, StreamEnd, TextDelta, ThinkingDelta, ToolCallDelta
from perdure.models.router import ModelRouter
from perdure.session.ledger import (
    Interrupted,
    ModelCalled,
    ModelFinished,
    TurnFinished,
)
from perdure.session.messages import ThinkingPart
from tests.fakes.players import USED, Players, Theatre, asks, words

DOWN = ModelUnavailable("p:main", "down")
SLOW = RateLimited("p:main", "slow down")


@perdure.tool(effect="read")
async def look() -> str:
    """Look."""
    return "a tree"


async def test_cumulative_cost_is_the_sum_of_all_cost_increments() -> None:
    # Scenario 3 of the specification.
    theatre = Theatre(main=[asks("look"), words("a tree")])
    chat = await theatre.chat(tools=[look])
    await chat.send("go")
    costs = [payload for type_, payload in await theatre.events() if type_ == "cost:updated"]
    assert [cost["costMicrocents"] for cost in costs] == [110, 110]
    assert [cost["cumulativeCostMicrocents"] for cost in costs] == [110, 220]
    assert {cost["model"] for cost in costs} == {"p:main"}


async def test_turn_over_the_budget_does_not_count_toward_the_turn_limit() -> None:
    # Scenario 5 of the specification.
    theatre = Theatre()
    once = perdure.Limits(max_turns=1)
    chat = await theatre.chat(options={"budget": perdure.Budget(1, "fail"), "limits": once})
    for _ in range(2):
        with pytest.raises(TurnFailed, match="raise max_cost_microcents") as failed:
            await chat.send("go")
        assert failed.value.failure == "budget_exceeded"
    assert theatre.players.requests == []
    enough = perdure.Budget(perdure.dollars(1), "fail")
    again = await theatre.runtime(budget=enough, limits=once).resume("s")
    assert (await again.send("go")).end == "stop"
    with pytest.raises(TurnFailed, match="max_turns"):
        await again.send("go")


async def test_error_before_the_first_token_calls_the_fallback_model() -> None:
    # Scenario 12 of the specification.
    theatre = Theatre(main=[(DOWN,)], other=[words("from the other")])
    chat = await theatre.chat(fallbacks=["q:other"])
    reply = await chat.send("go")
    assert (reply.text, reply.message and reply.message.model) == ("from the other", "q:other")
    assert theatre.players.called == ["main", "other"]


@pytest.mark.parametrize(
    "begun", [TextDelta("so f"), ThinkingDelta("hm"), ToolCallDelta(0, "c", "look")]
)
async def test_error_after_the_first_token_calls_no_fallback_model(
    begun: Delta,
) -> None:
    # Scenario 12 of the specification.
    theatre = Theatre(main=[(begun, DOWN)])
    chat = await theatre.chat(fallbacks=["q:other"], tools=[look])
    with pytest.raises(TurnFailed) as failed:
        await chat.send("go")
    assert failed.value.failure == "provider_unavailable"
    assert theatre.players.called == ["main"]


async def test_restart_on_cut_option_restarts_the_answer_on_the_fallback_model() -> None:
    # Scenario 12 of the specification.
    theatre = Theatre(main=[(TextDelta("so f"), DOWN)], other=[words("so far, so good")])
    chat = await theatre.chat(fallbacks=["q:other"], restart_on_cut=True)
    assert (await chat.send("go")).text == "so far, so good"
    (interrupted,) = await theatre.bodies(Interrupted)
    assert interrupted.partial.text == "so f"
    assert [m.text for m in await chat.session.messages()] == ["go", "so far, so good"]


async def test_answer_text_that_looks_like_an_error_causes_no_fallback() -> None:
    # Scenario 13 of the specification.
    theatre = Theatre(main=[words("Error: overloaded, try again"), words("")])
    chat = await theatre.chat(fallbacks=["q:other"])
    assert (await chat.send("go")).text.startswith("Error:")
    with pytest.raises(TurnFailed):
        await chat.send("go")
    assert theatre.players.called == ["main", "main"]


async def test_permanent_error_calls_no_fallback_model_whatever_its_text() -> None:
    # Scenario 13 of the specification.
    refused = ModelRefused("p:main", "overloaded, 503, please try again", 400)
    theatre = Theatre(main=[(refused,)])
    chat = await theatre.chat(fallbacks=["q:other"])
    with pytest.raises(TurnFailed):
        await chat.send("go")
    assert theatre.players.called == ["main"]


async def test_rejected_key_is_renewed_once_and_then_the_turn_fails() -> None:
    # Scenario 14 of the specification.
    refused = CredentialsRefused("p:main", "no such key", 401)
    theatre = Theatre(main=[(refused,), (refused,), words("never")])
    asked: list[str] = []

    async def renew(provider: str) -> bool:
        asked.append(provider)
        return True

    chat = await theatre.chat(fallbacks=["q:other"], options={"renew_credentials": renew})
    with pytest.raises(TurnFailed) as failed:
        await chat.send("go")
    assert failed.value.failure == "provider_auth"
    assert theatre.players.called == ["main", "main"]
    assert asked == ["p"]


async def test_failed_key_renewal_reports_the_original_error() -> None:
    # Scenario 14 of the specification.
    theatre = Theatre(main=[(CredentialsRefused("p:main", "no such key", 401),)])

    async def renew(provider: str) -> bool:
        raise OSError("sk-secret")

    chat = await theatre.chat(options={"renew_credentials": renew})
    with pytest.raises(TurnFailed, match="no such key"):
        await chat.send("go")
    assert theatre.players.called == ["main"]


async def test_rate_limited_provider_is_not_called_for_30_seconds() -> None:
    # Scenario 15 of the specification.
    theatre = Theatre(main=[(SLOW,)], other=[words(str(n)) for n in range(9)])
    chat = await theatre.chat(fallbacks=["q:other"])
    await chat.send("one")
    await chat.send("two")
    agent = perdure.Agent("helper", model="p:main", fallbacks=["q:other"])
    elsewhere = await theatre.runtime(agent).resume("s")  # as another process, by the log alone
    await elsewhere.send("three")
    assert theatre.players.called == ["main", "other", "other", "other"]
    theatre.clock.advance(31)
    await elsewhere.send("four")
    assert theatre.players.called[-1] == "main"


async def test_long_retry_delay_of_a_provider_applies_to_all_sessions() -> None:
    # Scenario 15 of the specification.
    theatre = Theatre(main=[(RateLimited("p:main", "slow down", 120.0),)])
    agent = perdure.Agent("helper", model="p:main", fallbacks=["q:other"])
    runtime = theatre.runtime(agent)
    await (await runtime.start(agent, id="one")).send("go")
    theatre.clock.advance(119)
    await (await runtime.start(agent, id="two")).send("go")
    assert theatre.players.called == ["main", "other", "other"]


async def test_turn_fails_without_a_call_if_all_providers_are_rate_limited() -> None:
    # Scenario 15 of the specification.
    theatre = Theatre(main=[(SLOW,)], other=[(RateLimited("q:other", "slow down"),)])
    chat = await theatre.chat(fallbacks=["q:other"])
    for expected in ("slow down", "no model of the chain can be called"):
        with pytest.raises(TurnFailed, match=expected):
            await chat.send("go")
    assert theatre.players.called == ["main", "other"]


async def test_request_to_another_provider_contains_no_reasoning() -> None:
    # Scenario 16 of the specification.
    thought = (ThinkingDelta("a tree, I think"), ToolCallDelta(0, "c1", "look", "{}"))
    theatre = Theatre(main=[(*thought, StreamEnd("tool_calls", USED)), (DOWN,)])
    chat = await theatre.chat(fallbacks=["q:other"], tools=[look])
    await chat.send("what is there?")
    request = theatre.players.requests[-1]
    assert request.model == "q:other"
    assert [m.role for m in request.messages] == ["user", "assistant", "tool"]
    assert not [p for m in request.messages for p in m.parts if isinstance(p, ThinkingPart)]


async def test_missing_key_error_contains_the_remedy_but_no_internal_error() -> None:
    # Scenario 18 of the specification.
    def broken() -> Players:
        raise ConfigError(f"for anthropic: {PROVIDERS['anthropic'].remedy}")

    theatre = Theatre()
    theatre.players = ModelRouter({}, factories={"p": broken})  # type: ignore[assignment] - a client
    chat = await theatre.chat()
    with pytest.raises(TurnFailed, match="ANTHROPIC_API_KEY") as failed:
        await chat.send("go")
    assert failed.value.__cause__ is None


async def test_call_over_the_remaining_budget_of_a_resumed_session_is_blocked() -> None:
    # Scenario 22 of the specification.
    theatre = Theatre(main=[words("one")])
    budget = perdure.Budget(4_300, "fail")
    chat = await theatre.chat(options={"budget": budget})
    await chat.send("one")
    resumed = await theatre.runtime(budget=budget).resume("s")
    with pytest.raises(TurnFailed) as failed:
        await resumed.send("two")
    assert failed.value.failure == "budget_exceeded"
    assert len(theatre.players.requests) == 1


async def test_costs_by_model_add_up_to_the_total() -> None:
    # Scenario 24 of the specification.
    theatre = Theatre(
        main=[(DOWN,), words("one"), (TextDelta("cut"), DOWN)], other=[words("two")], third=[]
    )
    chat = await theatre.chat(fallbacks=["q:other"])
    await chat.send("by the other")
    await chat.send("by itself")
    with pytest.raises(TurnFailed):
        await chat.send("cut")
    await chat.set_model("r:third")
    await chat.send("by a third")
    rows: dict[str | None, int] = defaultdict(int)
    for finished in await theatre.bodies(ModelFinished):
        rows[finished.model] += finished.usage.cost_microcents or 0 if finished.usage else 0
    assert rows.keys() == {"p:main", "q:other", "r:third"}
    assert sum(rows.values()) == (await chat.spent()).cost_microcents
    turns = await theatre.bodies(TurnFinished)
    assert sum((t.usage and t.usage.cost_microcents) or 0 for t in turns) == sum(rows.values())


async def test_turn_continues_after_approval_by_another_process() -> None:
    theatre = Theatre(main=[words("one"), words("two")])
    agent = perdure.Agent("helper", model="p:main", max_cost_microcents=1)
    first = await theatre.runtime(agent).start(agent, id="s")
    turn = first.send("go")
    async for event in turn:
        if event.type == "inbox:question":
            break
    await first.suspend()
    assert theatre.players.requests == []
    session = await theatre.store.open("s")
    (asked,) = await session.questions()
    assert asked.question.topic == "budget"
    await session.answer(asked.id, "continue", by="the boss")
    resumed = await theatre.runtime(agent).resume("s")
    assert resumed.turn is not None
    assert (await resumed.turn).text == "one"
    limit = asked.question.limit_microcents or 0
    assert limit > 4096
    # The limit that was granted holds for the next turn, too, and no further.
    turn = resumed.send("more")
    async for event in turn:
        if event.type == "inbox:question":
            break
    (again,) = await session.questions()
    await session.answer(again.id, "stop", by="the boss")
    with pytest.raises(TurnFailed, match="the boss would not spend more") as failed:
        await turn
    assert failed.value.failure == "budget_exceeded"


async def test_budget_warning_is_given_once_per_turn_before_the_call() -> None:
    theatre = Theatre(main=[asks("look"), words("a tree")])
    chat = await theatre.chat(tools=[look], max_cost_microcents=1, on_exceed="warn")
    assert (await chat.send("go")).text == "a tree"
    types = await theatre.types()
    assert types.count("cost:budget_warning") == 1


async def test_model_without_a_price_exceeds_every_budget_and_is_reported() -> None:
    theatre = Theatre()
    theatre.players.price = None
    chat = await theatre.chat(max_cost_microcents=perdure.dollars(100), on_exceed="fail")
    with pytest.raises(TurnFailed, match="the price of p:main is unknown"):
        await chat.send("go")
    prices = {"p:*": perdure.Price(perdure.dollars(1), perdure.dollars(2))}
    priced = await theatre.runtime(prices=prices).resume("s")
    reply = await priced.send("go")
    assert reply.usage.cost_microcents == (100 * 100) + (10 * 200)


async def test_unpriced_call_without_budget_is_counted_and_reported() -> None:
    theatre = Theatre()
    theatre.players.price = None
    chat = await theatre.chat()
    await chat.send("go")
    assert (await chat.spent()).unpriced_calls == 1
    (cost,) = [p for type_, p in await theatre.events() if type_ == "cost:updated"]
    assert (cost["priced"], cost["unpricedCalls"]) == (False, 1)


async def test_budget_check_uses_the_price_of_each_fallback_model() -> None:
    theatre = Theatre(main=[(DOWN,)], other=[words("never")])
    prices = {"p:*": perdure.Price(0, 0), "q:*": perdure.Price(perdure.dollars(9), 0)}
    theatre.players.price = None
    chat = await theatre.chat(
        fallbacks=["q:other"],
        max_cost_microcents=1,
        on_exceed="fail",
        options={"prices": prices},
    )
    with pytest.raises(TurnFailed) as failed:
        await chat.send("go")
    assert failed.value.failure == "budget_exceeded"
    assert theatre.players.called == ["main"]
    assert [called.model for called in await theatre.bodies(ModelCalled)] == ["p:main"]


async def test_summary_over_the_budget_is_not_requested() -> None:
    theatre = Theatre()
    budget = perdure.Budget(1, "fail")
    chat = await theatre.chat(options={"budget": budget})
    await chat.session.append(*[perdure.user("word " * 20_000), perdure.assistant("yes")] * 4)
    with pytest.raises(TurnFailed) as failed:
        await chat.compact()
    assert failed.value.failure == "budget_exceeded"
    assert theatre.players.requests == []


async def test_cost_of_an_unusable_summary_is_counted() -> None:
    theatre = Theatre(main=[words("short"), words("They counted words, and went on. " * 20)])
    chat = await theatre.chat()
    await chat.session.append(*[perdure.user("word " * 20_000), perdure.assistant("yes")] * 4)
    with pytest.raises(TurnFailed, match="too short"):
        await chat.compact()
    assert (await chat.spent()).cost_microcents == USED.total_tokens
    assert await chat.compact() is not None
    assert (await chat.spent()).cost_microcents == 2 * USED.total_tokens
