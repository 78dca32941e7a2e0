"""Budget checks before model calls, and the usage of uncounted calls."""

from __future__ import annotations

import msgspec
import pytest

from perdure.context.tokens import estimate_tokens
from perdure.engine.turns import inputs
from perdure.engine.turns.config import OUTPUT_TOKENS, Budget, OnExceed, TurnConfig
from perdure.engine.turns.effects import AwaitAnswer, CallModel, effect_of
from perdure.engine.turns.rules.budget import (
    Overrun,
    estimated_usage,
    overrun_of,
    overrun_text,
    summary_counted,
)
from perdure.errors import ModelUnavailable
from perdure.session.kinds import Compaction
from perdure.session.ledger import BudgetNoted, ModelCalled, ModelFinished, Spending
from perdure.session.messages import Usage, assistant, user
from perdure.session.notes import Answer, Question
from tests.fakes.turn_log import CONFIG, Course


def by_token(model: str, usage: Usage) -> int | None:
    return usage.total_tokens


def config(limit: int, on_exceed: OnExceed = "fail", **changes: object) -> TurnConfig:
    return msgspec.structs.replace(
        CONFIG, cost=by_token, budget=Budget(limit, on_exceed), **changes
    )


def first_tokens() -> int:
    return 10 + estimate_tokens(user("go"))


def test_model_call_above_the_budget_limit_is_not_allowed() -> None:
    most = first_tokens() + OUTPUT_TOKENS
    assert isinstance(effect_of(Course(config(most)).state), CallModel)
    course = Course(config(most - 1))
    assert course.log.bodies(ModelCalled) == []
    assert course.state.finished is not None
    assert course.state.finished.failure == "budget_exceeded"


def test_cost_estimate_assumes_the_maximum_answer_length() -> None:
    assert isinstance(
        effect_of(Course(config(first_tokens() + 5, max_output_tokens=5)).state), CallModel
    )


def test_every_call_is_checked_against_current_spending() -> None:
    course = Course(config(first_tokens() + OUTPUT_TOKENS))
    course.happens(inputs.Answered(assistant("so", usage=Usage(10, 2, cost_microcents=100))))
    assert course.state.spent == Spending(100)
    course.happens(inputs.Begin(user("more"), 2, None, 10, spent=course.state.spent))
    assert course.state.finished is not None
    assert course.state.finished.failure == "budget_exceeded"


def test_turn_without_a_budget_needs_no_price() -> None:
    called = ModelCalled(1, "p:m", tokens_estimated=10**9)
    assert overrun_of(called, CONFIG, Spending(10**12)) is None


def test_higher_spending_limit_granted_by_a_person_applies() -> None:
    called = ModelCalled(1, "p:m", tokens_estimated=1)
    asked = config(10, max_output_tokens=1)
    assert overrun_of(called, asked, Spending(9)) == Overrun(10, 2)
    assert overrun_of(called, asked, Spending(9), 11) is None
    assert overrun_of(called, asked, Spending(9), 3) == Overrun(10, 2)


def test_warned_turn_records_warning_once_and_continues() -> None:
    course = Course(config(1, "warn"))
    course.happens(inputs.CallFailed(ModelUnavailable("p:m", "down")))
    course.happens(inputs.Waited())
    assert len(course.log.bodies(ModelCalled)) == 2
    noted = BudgetNoted("p:m", 0, 1, first_tokens() + OUTPUT_TOKENS)
    assert course.log.bodies(BudgetNoted) == [noted]


def test_call_after_budget_approval_is_the_second_attempt() -> None:
    most = first_tokens() + OUTPUT_TOKENS
    course = Course(config(most, "pause_for_approval"))
    failed = inputs.CallFailed(ModelUnavailable("p:m", "cut"), usage=Usage(5, cost_microcents=5))
    course.happens(failed)
    course.happens(inputs.Waited())
    assert isinstance(effect_of(course.state), AwaitAnswer)
    (asked,) = course.log.bodies(Question)
    assert (asked.topic, asked.limit_microcents) == ("budget", 2 * most)
    assert "(its whole request and the longest allowed answer)" in asked.text
    question = course.state.question
    assert question is not None
    course.others_append(Answer("continue", "me"), question.id)
    course.happens(inputs.Woken())
    last = course.log.bodies(ModelCalled)[-1]
    assert (last.call, last.attempt) == (1, 2)
    assert course.state.limit_microcents == 2 * most


def test_permission_for_an_unknown_price_applies_to_one_model() -> None:
    paused = msgspec.structs.replace(CONFIG, budget=Budget(10))
    course = Course(paused)
    (asked,) = course.log.bodies(Question)
    assert asked.grant == "p:m"
    assert "unknown" in asked.text
    question = course.state.question
    assert question is not None
    course.others_append(Answer("continue", "me"), question.id)
    course.happens(inputs.Woken())
    assert isinstance(effect_of(course.state), CallModel)
    assert course.state.unpriced_allowed == {"p:m"}


def test_denied_spending_ends_turn() -> None:
    course = Course(config(1, "pause_for_approval"))
    question = course.state.question
    assert question is not None
    course.others_append(Answer("stop", "me"), question.id)
    course.happens(inputs.Woken())
    assert course.state.finished is not None
    assert course.state.finished.failure == "budget_exceeded"


def test_abort_during_question_writes_only_one_outcome() -> None:
    course = Course(config(first_tokens() + OUTPUT_TOKENS, "pause_for_approval"))
    course.happens(
        inputs.CallFailed(ModelUnavailable("p:m", "cut"), usage=Usage(5, cost_microcents=5))
    )
    course.happens(inputs.Waited())
    course.happens(inputs.Aborted())
    assert len(course.log.bodies(ModelFinished)) == 1
    assert course.state.finished is not None
    assert course.state.finished.end == "aborted"


def test_usage_of_a_lost_call_is_estimated() -> None:
    course = Course(config(0))
    course.happens(inputs.Lost(has_begun=True, partial=assistant("so far, so good")))
    lost = course.log.bodies(ModelFinished)[0]
    assert lost.is_estimated
    assert lost.usage is not None
    assert lost.usage.input_tokens == first_tokens()
    assert lost.usage.output_tokens > 0
    assert lost.spent == Spending(lost.usage.total_tokens)


def test_call_without_reported_usage_has_no_usage() -> None:
    assert estimated_usage("p:m", None, None, CONFIG) is None


def test_summary_estimate_without_a_known_window_assumes_many_parts() -> None:
    called = ModelCalled(1, "p:m", purpose="summary", tokens_estimated=100)
    of_branch = msgspec.structs.replace(called, call=0)
    one = CONFIG.compaction.summary_tokens
    most = 100 + 15 * one + 16 * one
    assert overrun_of(called, config(most, window_tokens=None), Spending()) is None
    assert overrun_of(called, config(most - 1, window_tokens=None), Spending()) == Overrun(
        most - 1, most
    )
    assert overrun_of(called, config(100 + one, window_tokens=100), Spending()) is None
    assert overrun_of(of_branch, config(100 + one, window_tokens=None), Spending()) is None


def test_usage_of_a_summary_is_priced_or_estimated() -> None:
    nothing = inputs.NothingToSummarise()
    assert summary_counted(nothing, "p:m", 5, CONFIG) is nothing
    counted = inputs.Summarised(Compaction("sum"), Usage(3, 4))
    assert summary_counted(counted, "p:m", 5, config(0)) == inputs.Summarised(
        Compaction("sum"), Usage(3, 4, cost_microcents=7)
    )
    uncounted = summary_counted(inputs.Summarised(Compaction("summed up")), "p:m", 5, config(0))
    assert isinstance(uncounted, inputs.Summarised)
    assert uncounted.is_estimated


@pytest.mark.parametrize(("estimate", "word"), [(None, "unknown"), (5, "may cost up to")])
def test_budget_question_contains_the_price_and_the_limit(estimate: int | None, word: str) -> None:
    text = overrun_text("p:m", Spending(), Overrun(1, estimate))
    assert word in text
    assert ("longest allowed answer" in text) == (estimate is not None)
