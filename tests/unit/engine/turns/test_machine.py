"""The steps of a turn: the entries that it appends, and the number of its commits."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.config import Limits
from perdure.engine.turns.effects import CallModel, RunTool, effect_of
from perdure.engine.turns.machine import step
from perdure.engine.turns.state import Phase
from perdure.errors import InvalidTransition
from perdure.session.ledger import ModelCalled, ToolFinished, ToolStarted, TurnFinished
from perdure.session.messages import StopReason, Usage, assistant, tool_call, user
from tests.fakes.turn_log import CONFIG, Course, empty_state


def test_turn_without_tools_makes_two_commits() -> None:
    course = Course()
    assert course.log.kinds == ["turn_started", "message", "model_called"]
    assert isinstance(effect_of(course.state), CallModel)
    course.happens(inputs.Answered(assistant("hello", usage=Usage(10, 2))))
    assert course.log.kinds[3:] == ["model_finished", "message", "turn_finished"]
    assert course.state.phase is Phase.FINISHED
    assert course.state.finished == TurnFinished("stop", Usage(10, 2))
    assert len(course.log.commits) == 2


@pytest.mark.parametrize("k", [1, 2, 5])
def test_each_additional_tool_call_adds_one_commit(k: int) -> None:
    course = Course()
    calls = [tool_call(f"c{n}", "retry") for n in range(k)]
    course.happens(inputs.Answered(assistant("so", *calls)))
    for _ in calls:
        assert isinstance(effect_of(course.state), RunTool)
        course.happens(inputs.ToolReturned("fine"))
    course.happens(inputs.Answered(assistant("done")))
    assert course.state.phase is Phase.FINISHED
    assert len(course.log.commits) == k + 3


@pytest.mark.parametrize("k", [1, 2, 5])
def test_number_of_commits_is_the_number_of_effects_plus_one(k: int) -> None:
    """Minimal: one commit contains the outcome of an effect and the intent of the next effect."""
    course = Course()
    for n in range(k):
        course.happens(inputs.Answered(assistant(tool_call(f"c{n}", "retry"))))
        course.happens(inputs.ToolReturned("fine"))
    course.happens(inputs.Answered(assistant("done")))
    effects = len(course.log.bodies(ModelCalled)) + len(course.log.bodies(ToolStarted))
    assert effects == 2 * k + 1
    assert len(course.log.commits) == effects + 1


def test_ended_session_is_reopened_in_first_commit_of_its_turn() -> None:
    begun = step(empty_state(), inputs.Begin(user("go"), 2, None, is_reopening=True), CONFIG, 0)
    kinds = [entry.kind for entry in begun.entries]
    assert kinds == ["session_reopened", "turn_started", "message", "model_called"]
    assert begun.state.turn_seq == 1


def test_outcome_and_the_next_intent_share_a_commit() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c1", "retry"), tool_call("c2", "ask"))))
    assert course.log.kinds[-3:] == ["model_finished", "message", "tool_started"]
    course.happens(inputs.ToolReturned("one"))
    assert course.log.kinds[-3:] == ["tool_finished", "message", "tool_started"]
    course.happens(inputs.ToolReturned("two"))
    assert course.log.kinds[-3:] == ["tool_finished", "message", "model_called"]


def test_idempotency_key_of_call_is_its_unique_log_position() -> None:
    course = Course()
    twice = [tool_call("same", "retry"), tool_call("same", "retry")]
    course.happens(inputs.Answered(assistant(*twice)))
    course.happens(inputs.ToolReturned("one"))
    course.happens(inputs.ToolReturned("two"))
    course.happens(inputs.Answered(assistant(*twice)))
    keys = [started.idempotency_key for started in course.log.bodies(ToolStarted)]
    assert len(keys) == len(set(keys)) == 4


def test_outcome_of_a_tool_call_refers_to_its_result_message() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c1", "retry"))))
    course.happens(inputs.ToolReturned("one"))
    finished = course.log.bodies(ToolFinished)[0]
    result = next(entry for entry in course.log.entries if entry.id == finished.result)
    assert result.message is not None
    assert result.message.text == "one"


def test_call_of_an_unknown_tool_is_refused_without_a_run() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c1", "unheard-of"))))
    assert course.log.bodies(ToolStarted) == []
    assert course.log.bodies(ToolFinished)[0].outcome == "refused"
    assert "ask, never, retry" in course.log.messages[-1].text
    assert isinstance(effect_of(course.state), CallModel)


def test_turn_limit_ends_turn_with_error_without_model_call() -> None:
    config = msgspec.structs.replace(CONFIG, limits=Limits(max_turns=2))
    course = Course(config, ran=2)
    assert course.log.bodies(ModelCalled) == []
    assert [message.text for message in course.log.messages] == ["go"]
    assert course.state.finished is not None
    assert course.state.finished.failure == "turn_limit"
    assert "max_turns" in (course.state.finished.error or "")


def test_limit_of_tool_rounds_ends_the_turn() -> None:
    config = msgspec.structs.replace(CONFIG, limits=Limits(max_tool_rounds=2))
    course = Course(config)
    for _ in range(2):
        course.happens(inputs.Answered(assistant(tool_call("c", "retry"))))
        course.happens(inputs.ToolReturned("again"))
    course.happens(inputs.Answered(assistant(tool_call("c", "retry"))))
    assert course.state.finished is not None
    assert course.state.finished.failure == "tool_round_limit"
    assert len(course.log.bodies(ModelCalled)) == 3
    assert course.log.messages[-1].role == "tool"


def test_correctable_errors_end_the_turn_at_the_limit() -> None:
    config = msgspec.structs.replace(CONFIG, limits=Limits(max_correctable_rounds=1))
    course = Course(config)
    wrong = assistant(tool_call("c1", "unheard-of"), tool_call("c2", "unheard-of"))
    course.happens(inputs.Answered(wrong))
    assert course.state.correctable_rounds == 1
    course.happens(inputs.Answered(assistant(tool_call("c3", "ask"))))
    course.happens(inputs.ToolReturned("no", "refused", error_code="invalid_arguments"))
    assert course.state.finished is not None
    assert course.state.finished.failure == "tool_failed"


@pytest.mark.parametrize("reason", ["length", "content_filter"])
def test_tool_call_in_truncated_answer_is_not_run(reason: StopReason) -> None:
    course = Course()
    cut = msgspec.structs.replace(assistant(tool_call("c1", "ask")), stop_reason=reason)
    course.happens(inputs.Answered(cut))
    assert course.log.bodies(ToolStarted) == []
    assert course.state.finished is not None
    assert course.state.finished.end == reason


def test_empty_answer_ends_turn_without_message() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant()))
    assert course.state.phase is Phase.FINISHED
    assert [message.role for message in course.log.messages] == ["user"]


def test_finished_turn_ends_session_if_its_agent_requests_that() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c1", "ask"))))
    course.happens(inputs.ToolReturned("bye", ends_session=True))
    assert "session_ended" not in course.log.kinds
    course.happens(inputs.Answered(assistant("goodbye")))
    assert course.log.kinds[-2:] == ["turn_finished", "session_ended"]


def test_input_that_does_not_fit_the_turn_phase_is_rejected() -> None:
    with pytest.raises(InvalidTransition, match="Waited is not possible"):
        step(empty_state(), inputs.Waited(), CONFIG, 0)
    with pytest.raises(InvalidTransition):
        Course().happens(inputs.ToolReturned("what"))
