"""The fold of a turn: the effect of each entry, regardless of its writer."""

from __future__ import annotations

from perdure.engine.turns import inputs
from perdure.engine.turns.state import Phase, fold
from perdure.errors import ModelUnavailable
from perdure.session.codec import new_side
from perdure.session.messages import Usage, assistant, tool_call
from perdure.session.notes import Label, SessionInfoChanged
from tests.fakes.turn_log import Course, TurnLog, empty_state


def test_empty_session_has_initial_state() -> None:
    assert empty_state().phase is Phase.IDLE
    assert fold(empty_state(), []) == empty_state()


def test_label_or_title_does_not_change_the_turn_phase() -> None:
    course = Course()
    before = course.state
    course.others_append(Label("here"))
    course.others_append(SessionInfoChanged(title="T"))
    assert course.state.head == before.head + 2
    assert course.state.phase is before.phase


def test_entry_of_unknown_kind_is_skipped() -> None:
    log = TurnLog()
    new = new_side(Label("x"))
    future = type(new)("of_the_future", b'{"v": 9}', 9, "side")
    assert fold(empty_state(), log.append([future])).head == 0


def test_usage_of_a_turn_is_the_sum_of_its_calls() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c", "retry"), usage=Usage(10, 1))))
    course.happens(inputs.ToolReturned("ok"))
    course.happens(inputs.Answered(assistant("done", usage=Usage(20, 2, 5))))
    assert course.state.usage == Usage(30, 3, 5)


def test_context_size_includes_an_estimate_of_later_messages() -> None:
    course = Course()
    assert course.state.context_tokens is not None
    assert course.state.context_tokens > 10
    course.happens(inputs.Answered(assistant(tool_call("c", "retry"), usage=Usage(100, 7))))
    assert course.state.context_tokens == 107
    course.happens(inputs.ToolReturned("x" * 400))
    assert 200 <= course.state.context_tokens <= 260


def test_tool_result_answers_only_the_first_open_call_with_its_id() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c", "retry"), tool_call("c", "never"))))
    course.happens(inputs.ToolReturned("one"))
    assert [call.name for call in course.state.pending] == ["never"]


def test_start_of_a_turn_resets_the_state_of_the_previous_turn() -> None:
    course = Course()
    course.happens(inputs.CallFailed(ModelUnavailable("p:m", "down")))
    course.happens(inputs.Aborted())
    course.happens(inputs.Begin(assistant("x"), 2, None))
    assert course.state.number == 2
    assert course.state.last_error is None
    assert course.state.finished is None
