"""The next model of the chain depends only on the class of the error."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.config import PARK_MS, Link, TurnConfig
from perdure.engine.turns.effects import CallModel, Wait, effect_of
from perdure.engine.turns.rules.chain import Again, GiveUp, course_after, next_link, passed_over
from perdure.engine.turns.state import OpenCall
from perdure.errors import (
    ContextOverflow,
    CredentialsRefused,
    MalformedResponse,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from perdure.models.retry import RetryPolicy
from perdure.session.ledger import ModelCalled, ModelFinished
from perdure.session.messages import Message, assistant
from tests.fakes.turn_log import CONFIG, Course, empty_state

ONCE = RetryPolicy(max_attempts=1)
CHAIN = msgspec.structs.replace(
    CONFIG,
    retry=ONCE,
    fallbacks=(
        Link("q:two", RetryPolicy(max_attempts=2, first_wait_s=0.25, jitter=0)),
        Link("p:three", ONCE, window_tokens=100),
    ),
)
DOWN = ModelUnavailable("p:m", "down")
CALL = OpenCall(2, 1, 1, "p:m", "answer")


def called(course: Course) -> list[str]:
    return [body.model for body in course.log.bodies(ModelCalled)]


def test_temporary_error_advances_through_whole_chain() -> None:
    course = Course(CHAIN)
    course.happens(inputs.CallFailed(DOWN))
    assert isinstance(effect_of(course.state), CallModel)  # none waits before another is called
    course.happens(inputs.CallFailed(DOWN))
    waiting = effect_of(course.state)
    assert isinstance(waiting, Wait)
    assert waiting.until == 250
    course.happens(inputs.Waited())
    course.happens(inputs.CallFailed(DOWN))
    course.happens(inputs.CallFailed(DOWN))
    assert called(course) == ["p:m", "q:two", "q:two", "p:three"]
    assert [body.attempt for body in course.log.bodies(ModelCalled)] == [1, 2, 3, 4]
    assert course.state.finished is not None
    assert course.state.finished.failure == "provider_unavailable"


@pytest.mark.parametrize(
    "error",
    [
        ModelRefused("p:m", "no", 400),
        CredentialsRefused("p:m", "no", 401),
        ModelError("p:m", "odd"),
        ContextOverflow("p:m", "long"),
    ],
)
def test_permanent_error_stops_the_fallback_chain(error: ModelError) -> None:
    assert course_after(empty_state(), CALL, inputs.CallFailed(error), CHAIN, 0) == GiveUp()


def test_renewed_key_allows_a_second_attempt() -> None:
    refused = CredentialsRefused("p:m", "no", 401)
    renewed = inputs.CallFailed(refused, is_renewed=True)
    assert course_after(empty_state(), CALL, renewed, CHAIN, 0) == Again(0.0)
    course = Course(CHAIN)
    course.happens(renewed)
    assert course.state.renewed == {"p"}
    assert course.log.bodies(ModelFinished)[-1].is_renewed


def test_rate_limit_pauses_all_models_of_its_provider() -> None:
    course = Course(CHAIN)
    course.happens(inputs.CallFailed(RateLimited("p:m", "slow", retry_after_s=90.0)))
    assert course.state.parked == {"p": 90_000}
    course.happens(inputs.CallFailed(RateLimited("q:two", "slow")))
    assert course.state.parked == {"p": 90_000, "q": PARK_MS}
    assert called(course) == ["p:m", "q:two"]
    assert course.state.finished is not None
    assert course.state.finished.failure == "provider_rate_limit"


def test_rate_limited_model_without_a_fallback_is_not_skipped() -> None:
    course = Course()
    course.happens(inputs.CallFailed(RateLimited("p:m", "slow", retry_after_s=7.0)))
    assert course.state.parked == {}
    assert isinstance(effect_of(course.state), Wait)


def test_model_with_too_small_window_is_skipped() -> None:
    state = msgspec.structs.replace(empty_state(), context_tokens=101)
    assert next_link(state, CHAIN, 0, after=1) is None
    assert next_link(empty_state(), CHAIN, 0, after=1) == 2
    assert next_link(state, CHAIN, 0) == 0


def test_rate_limited_provider_is_called_again_after_its_pause() -> None:
    state = msgspec.structs.replace(empty_state(), parked={"p": 1_000})
    assert [next_link(state, CHAIN, at) for at in (999, 1_000)] == [1, 0]
    told = passed_over(msgspec.structs.replace(state, parked={"p": 1, "q": 1}), CHAIN, 0)
    assert "q:two limits the rate" in told


@pytest.mark.parametrize("partial", [None, assistant("so f")])
def test_failure_after_the_first_output_is_reported_without_fallback(
    partial: Message | None,
) -> None:
    course = Course(CHAIN)
    course.happens(inputs.CallFailed(DOWN, partial, has_begun=True))
    assert course.state.finished is not None
    assert called(course) == ["p:m"]


def restarting(**changes: object) -> TurnConfig:
    return msgspec.structs.replace(CHAIN, restart_on_cut=True, **changes)


def test_only_a_temporary_error_restarts_the_answer_on_another_model() -> None:
    course = Course(restarting())
    course.happens(inputs.CallFailed(DOWN, assistant("so f"), has_begun=True))
    assert called(course) == ["p:m", "q:two"]
    refused = inputs.CallFailed(ModelRefused("q:two", "no"), has_begun=True)
    course.happens(refused)
    assert course.state.finished is not None


def test_answer_without_a_fallback_restarts_on_the_same_model() -> None:
    alone = restarting(fallbacks=(), retry=RetryPolicy(max_attempts=2, jitter=0))
    course = Course(alone)
    course.happens(inputs.CallFailed(DOWN, has_begun=True))
    assert isinstance(effect_of(course.state), Wait)
    course.happens(inputs.Waited())
    course.happens(inputs.CallFailed(MalformedResponse("p:m", "what"), has_begun=True))
    assert course.state.finished is not None


def test_next_turn_starts_with_the_first_model_of_the_chain() -> None:
    course = Course(CHAIN)
    course.happens(inputs.CallFailed(DOWN))
    course.happens(inputs.Answered(assistant("so")))
    assert course.state.finished is not None
    course.happens(inputs.Begin(course.log.messages[0], 2, None, 10))
    assert called(course)[-1] == "p:m"
