"""Model calls that fail, are aborted, or have too long a context."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.config import CompactionSettings
from perdure.engine.turns.effects import CallModel, Wait, effect_of
from perdure.engine.turns.state import Phase
from perdure.errors import ContextOverflow, ModelRefused, ModelUnavailable, RateLimited
from perdure.models.retry import RetryPolicy
from perdure.session.kinds import Compaction
from perdure.session.ledger import Interrupted, ModelCalled, ModelFinished, ToolFinished, Trimmed
from perdure.session.messages import Usage, assistant, tool_call
from tests.fakes.turn_log import CONFIG, Course

DOWN = ModelUnavailable("p:m", "down")
OVERFLOW = ContextOverflow("p:m", "too long")
SUMMARY = Compaction("what was said", tokens_after=50)


def test_temporary_failure_is_retried_after_wait() -> None:
    course = Course()
    course.happens(inputs.CallFailed(DOWN, assistant("so f", stop_reason="stop")))
    assert course.log.bodies(Interrupted)[0].partial.text == "so f"
    waiting = effect_of(course.state)
    assert isinstance(waiting, Wait)
    assert waiting.until == 2000
    course.happens(inputs.Waited())
    assert course.log.bodies(ModelCalled)[-1].attempt == 2
    course.happens(inputs.Answered(assistant("there")))
    assert [message.role for message in course.log.messages] == ["user", "assistant"]


def test_retry_waits_as_long_as_the_provider_asks_for() -> None:
    course = Course()
    course.happens(inputs.CallFailed(RateLimited("p:m", "slow", retry_after_s=7.5)))
    assert course.log.bodies(ModelFinished)[-1].wait_s == 7.5


def test_exhausted_attempts_end_turn_with_reason() -> None:
    config = msgspec.structs.replace(CONFIG, retry=RetryPolicy(max_attempts=2))
    course = Course(config)
    course.happens(inputs.CallFailed(DOWN))
    course.happens(inputs.Waited())
    course.happens(inputs.CallFailed(DOWN))
    assert course.state.finished is not None
    assert course.state.finished.failure == "provider_unavailable"
    assert [message.role for message in course.log.messages] == ["user"]


def test_refused_call_is_not_retried() -> None:
    course = Course()
    course.happens(inputs.CallFailed(ModelRefused("p:m", "no key", 401)))
    assert course.state.finished is not None
    assert course.state.finished.failure == "provider_refused"


def test_context_overflow_causes_one_compaction_and_one_retry() -> None:
    course = Course()
    course.happens(inputs.CallFailed(OVERFLOW))
    assert course.log.bodies(ModelCalled)[-1].purpose == "summary"
    course.happens(inputs.Summarised(SUMMARY, Usage(5, 5)))
    assert course.log.kinds[-3:] == ["model_finished", "compaction", "model_called"]
    assert course.log.bodies(ModelCalled)[-1].tokens_estimated == 50
    course.happens(inputs.CallFailed(OVERFLOW))
    assert course.state.finished is not None
    assert course.state.finished.failure == "context_overflow"
    assert course.log.kinds.count("compaction") == 1


def test_overflow_error_includes_the_reason_of_the_failed_summary() -> None:
    course = Course()
    course.happens(inputs.CallFailed(OVERFLOW))
    course.happens(inputs.CallFailed(ContextOverflow("p:m", "the summary is too long")))
    course.happens(inputs.CallFailed(OVERFLOW))
    assert course.state.finished is not None
    assert course.state.finished.failure == "context_overflow"
    assert course.state.finished.error == (
        "p:m: too long; the summary of the older messages failed before: the summary is too long"
    )


def test_context_overflow_ends_the_turn_if_compaction_is_disabled() -> None:
    settings = CompactionSettings(is_enabled=False)
    course = Course(msgspec.structs.replace(CONFIG, compaction=settings))
    course.happens(inputs.CallFailed(OVERFLOW))
    assert course.state.phase is Phase.FINISHED


def test_nearly_full_context_is_compacted_before_the_model_call() -> None:
    config = msgspec.structs.replace(CONFIG, window_tokens=12)
    course = Course(config)
    assert course.log.bodies(ModelCalled)[-1].purpose == "summary"
    course.happens(inputs.Summarised(SUMMARY))
    assert course.log.bodies(ModelCalled)[-1].purpose == "answer"


@pytest.mark.parametrize(
    "failed",
    [
        inputs.CallFailed(ModelRefused("p:m", "no")),
        inputs.CallFailed(OVERFLOW),
        inputs.NothingToSummarise(),
    ],
)
def test_failed_summary_leaves_context_unchanged(
    failed: inputs.CallFailed | inputs.NothingToSummarise,
) -> None:
    course = Course(msgspec.structs.replace(CONFIG, window_tokens=12))
    course.happens(failed)
    assert course.log.bodies(ModelCalled)[-1].purpose == "answer"
    course.happens(inputs.Answered(assistant("all of it")))
    assert course.state.phase is Phase.FINISHED
    assert "compaction" not in course.log.kinds


def test_aborted_answer_remains_in_context_only_with_continue_policy() -> None:
    begun = assistant("I was ab", tool_call("c", "ask"))
    for policy in ("retry", "continue"):
        course = Course(msgspec.structs.replace(CONFIG, on_interrupt=policy))
        course.happens(inputs.Aborted(begun))
        assert course.log.bodies(Interrupted) == [Interrupted(begun)]
        assert course.state.finished is not None
        assert course.state.finished.end == "aborted"
        last = course.log.messages[-1]
        if policy == "retry":
            assert last.role == "user"
        else:
            assert (last.text, last.stop_reason, last.tool_calls) == ("I was ab", "aborted", ())


def test_aborted_tool_is_reported_as_possibly_partial() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c1", "ask"), tool_call("c2", "ask"))))
    course.happens(inputs.Aborted())
    outcomes = [(done.id, done.outcome) for done in course.log.bodies(ToolFinished)]
    assert outcomes == [("c1", "aborted"), ("c2", "aborted")]
    results = [message.text for message in course.log.messages if message.role == "tool"]
    assert "in part" in results[0]
    assert "Not run" in results[1]


def test_messages_dropped_from_a_request_are_reported() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant("short"), Trimmed(3, 2, "window", 100)))
    assert "trimmed" in course.log.kinds


def test_first_effect_of_a_turn_is_a_model_call() -> None:
    assert isinstance(effect_of(Course().state), CallModel)


def test_summary_of_a_long_result_has_no_part_of_a_secret_at_its_end() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant("", tool_call("c1", "ask"))))
    course.happens(inputs.ToolReturned("no " * 162 + "sk-ant-api03-" + "Ab1" * 30))
    (finished,) = course.log.bodies(ToolFinished)
    assert finished.summary is not None
    assert finished.summary.startswith("no no")
    assert "sk-ant" not in finished.summary
