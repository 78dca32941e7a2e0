"""Messages queued during a turn: when they are adopted and answered."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.config import QueueModes
from perdure.engine.turns.effects import CallModel, effect_of
from perdure.engine.turns.state import Phase
from perdure.session.codec import encode
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, TextPart, assistant, tool_call, user
from perdure.session.notes import Adopted, Queued, QueueMode
from tests.fakes.turn_log import CONFIG, Course


def queued(said: Message, mode: QueueMode = "steer") -> Queued:
    return Queued("message", msgspec.Raw(encode(said)), mode=mode)


def test_steering_reaches_the_model_before_its_next_call() -> None:
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("c", "retry"))))
    course.others_append(queued(user("not that one")))
    course.happens(inputs.ToolReturned("fine"))
    assert course.log.kinds[-3:] == ["message", "adopted", "model_called"]
    assert course.log.messages[-1].text == "not that one"


def test_follow_up_waits_until_the_model_would_stop() -> None:
    course = Course()
    course.others_append(queued(user("and then?"), "follow_up"))
    course.happens(inputs.Answered(assistant(tool_call("c", "retry"))))
    course.happens(inputs.ToolReturned("fine"))
    assert course.state.queued
    course.happens(inputs.Answered(assistant("first")))
    assert isinstance(effect_of(course.state), CallModel)
    assert course.log.messages[-1].text == "and then?"
    course.happens(inputs.Answered(assistant("second")))
    assert course.state.phase is Phase.FINISHED


@pytest.mark.parametrize(("mode", "calls"), [("one-at-a-time", 3), ("all", 2)])
def test_queued_messages_are_answered_singly_or_together(mode: QueueModes, calls: int) -> None:
    course = Course(msgspec.structs.replace(CONFIG, queue_mode=mode))
    course.others_append(queued(user("one")))
    course.others_append(queued(user("two")))
    while course.state.phase is not Phase.FINISHED:
        course.happens(inputs.Answered(assistant("yes")))
    assert course.log.kinds.count("model_called") == calls
    assert course.state.queued == ()


def test_queued_entry_without_question_is_adopted_without_call() -> None:
    course = Course()
    note = CustomMessage("note", (TextPart("seen"),))
    course.others_append(Queued("custom_message", msgspec.Raw(encode(note))))
    course.others_append(queued(assistant("by somebody else")))
    course.happens(inputs.Answered(assistant("mine")))
    assert course.state.phase is Phase.FINISHED
    assert course.state.answer is not None
    assert course.state.answer.text == "mine"
    assert len(course.log.bodies(Adopted)) == 2


def test_foreign_tool_calls_are_not_run() -> None:
    course = Course()
    course.others_append(queued(assistant("look", tool_call("x", "ask"))))
    course.happens(inputs.Answered(assistant("done")))
    assert "tool_started" not in course.log.kinds
    assert course.state.phase is Phase.FINISHED


@pytest.mark.parametrize(
    "end", [inputs.Aborted(), inputs.Answered(assistant("x", stop_reason="length"))]
)
def test_every_turn_end_adopts_queued_messages(
    end: inputs.Aborted | inputs.Answered,
) -> None:
    course = Course()
    course.others_append(queued(user("wait"), "follow_up"))
    course.happens(end)
    assert course.state.phase is Phase.FINISHED
    assert course.state.queued == ()
    assert course.log.messages[-1].text == "wait"
