"""The next effect of a turn follows from its state; a finished turn has none."""

from __future__ import annotations

from perdure.engine.turns import inputs
from perdure.engine.turns.effects import AwaitAnswer, CallModel, RunTool, Wait, effect_of
from perdure.errors import ModelUnavailable
from perdure.session.messages import assistant, tool_call
from tests.fakes.turn_log import Course, empty_state


def test_next_effect_follows_from_the_turn_state() -> None:
    course = Course()
    assert isinstance(effect_of(course.state), CallModel)
    course.happens(inputs.CallFailed(ModelUnavailable("p:m", "down")))
    assert isinstance(effect_of(course.state), Wait)
    course.happens(inputs.Waited())
    course.happens(inputs.Answered(assistant(tool_call("c", "ask"))))
    assert isinstance(effect_of(course.state), RunTool)
    course.happens(inputs.Lost())
    assert isinstance(effect_of(course.state), AwaitAnswer)
    course.happens(inputs.Aborted())
    assert effect_of(course.state) is None


def test_session_without_an_open_turn_has_no_effect_to_run() -> None:
    assert effect_of(empty_state()) is None
