"""Messages queued during a turn: when they are adopted and answered."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.config import QueueModes, ToolFacts
from perdure.engine.turns.effects import CallModel, RunTool, effect_of
from perdure.engine.turns.rules.progress import SIDE_BY_SIDE
from perdure.engine.turns.state import Phase
from perdure.session.codec import encode
from perdure.session.kinds import CustomMessage
from perdure.session.ledger import ToolFinished, ToolStarted
from perdure.session.messages import Message, TextPart, assistant, tool_call, user
from perdure.session.notes import Adopted, Queued, QueueMode
from tests.fakes.turn_log import CONFIG, Course


def queued(said: Message, mode: QueueMode = "steer") -> Queued:
    return Queued("message", msgspec.Raw(encode(said)), mode=mode)


def test_steering_reaches_model_before_its_next_call() -> None:
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
def test_queued_messages_are_answered_one_by_one_or_together(mode: QueueModes, calls: int) -> None:
    course = Course(msgspec.structs.replace(CONFIG, queue_mode=mode))
    course.others_append(queued(user("one")))
    course.others_append(queued(user("two")))
    while course.state.phase is not Phase.FINISHED:
        course.happens(inputs.Answered(assistant("yes")))
    assert course.log.kinds.count("model_called") == calls
    assert course.state.queued == ()


def test_queued_entries_other_than_user_messages_cause_no_model_call() -> None:
    course = Course()
    note = CustomMessage("note", (TextPart("seen"),))
    course.others_append(Queued("custom_message", msgspec.Raw(encode(note))))
    course.others_append(queued(assistant("by somebody else")))
    course.happens(inputs.Answered(assistant("mine")))
    assert course.state.phase is Phase.FINISHED
    assert course.state.answer is not None
    assert course.state.answer.text == "mine"
    assert len(course.log.bodies(Adopted)) == 2


def test_tool_calls_appended_by_other_writers_are_not_run() -> None:
    course = Course()
    course.others_append(queued(assistant("look", tool_call("x", "ask"))))
    course.happens(inputs.Answered(assistant("done")))
    assert "tool_started" not in course.log.kinds
    assert course.state.phase is Phase.FINISHED


@pytest.mark.parametrize(
    "end", [inputs.Aborted(), inputs.Answered(assistant("x", stop_reason="length"))]
)
def test_every_end_of_a_turn_adds_queued_messages_to_the_branch(
    end: inputs.Aborted | inputs.Answered,
) -> None:
    course = Course()
    course.others_append(queued(user("wait"), "follow_up"))
    course.happens(end)
    assert course.state.phase is Phase.FINISHED
    assert course.state.queued == ()
    assert course.log.messages[-1].text == "wait"


def reads(count: int) -> inputs.Answered:
    """An answer that calls a tool without effects several times."""
    return inputs.Answered(assistant(*(tool_call(f"c{n}", "retry") for n in range(count))))


def test_calls_that_only_read_start_in_parallel_up_to_the_limit() -> None:
    course = Course()
    course.happens(reads(SIDE_BY_SIDE + 1))
    assert len(course.log.bodies(ToolStarted)) == SIDE_BY_SIDE
    effect = effect_of(course.state)
    assert isinstance(effect, RunTool)
    assert effect.tool.started.id == "c0"
    assert len(effect.beside) == SIDE_BY_SIDE - 1
    course.happens(inputs.ToolReturned("first"))
    assert [started.id for started in course.log.bodies(ToolStarted)][-1] == f"c{SIDE_BY_SIDE}"


@pytest.mark.parametrize("first", ["never", "ask", "retry"])
def test_call_with_side_effect_runs_alone(first: str) -> None:
    second = "retry" if first != "retry" else "ask"
    course = Course()
    course.happens(inputs.Answered(assistant(tool_call("a", first), tool_call("b", second))))
    assert [started.id for started in course.log.bodies(ToolStarted)] == ["a"]
    course.happens(inputs.ToolReturned("done"))
    assert [started.id for started in course.log.bodies(ToolStarted)] == ["a", "b"]


@pytest.mark.parametrize(("first", "second"), [("plain", "retry"), ("retry", "plain")])
def test_synchronous_tool_function_runs_alone(first: str, second: str) -> None:
    tools = {**CONFIG.tools, "plain": ToolFacts("read", "retry", is_async=False)}
    course = Course(msgspec.structs.replace(CONFIG, tools=tools))
    course.happens(inputs.Answered(assistant(tool_call("a", first), tool_call("b", second))))
    assert [started.id for started in course.log.bodies(ToolStarted)] == ["a"]
    course.happens(inputs.ToolReturned("done"))
    assert [started.id for started in course.log.bodies(ToolStarted)] == ["a", "b"]


def test_lost_parallel_calls_run_again_with_their_idempotency_keys() -> None:
    course = Course()
    course.happens(reads(3))
    course.happens(inputs.Lost())
    runs = [(run.idempotency_key, run.attempt) for run in course.log.bodies(ToolStarted)]
    assert [attempt for _, attempt in runs] == [1, 1, 1, 2, 2, 2]
    assert [key for key, _ in runs[:3]] == [key for key, _ in runs[3:]]
    for text in "abc":
        course.happens(inputs.ToolReturned(text))
    results = [message.text for message in course.log.messages if message.role == "tool"]
    assert results == ["a", "b", "c"]
    assert isinstance(effect_of(course.state), CallModel)


def test_abort_records_outcome_of_every_running_call() -> None:
    course = Course()
    course.happens(reads(2))
    course.happens(inputs.Aborted())
    ended = course.log.bodies(ToolFinished)
    assert [(end.id, end.outcome) for end in ended] == [("c0", "aborted"), ("c1", "aborted")]
    assert all("while the tool ran" in str(end.error) for end in ended)
    assert effect_of(course.state) is None


def test_abort_keeps_results_of_finished_calls() -> None:
    course = Course()
    course.happens(reads(4))
    effect = effect_of(course.state)
    assert isinstance(effect, RunTool)
    ended = {effect.beside[0].seq: "one", effect.beside[2].seq: "three"}
    returned = {seq: inputs.ToolReturned(text) for seq, text in ended.items()}
    course.happens(inputs.Aborted(returned=returned))
    outcomes = [(end.id, end.outcome) for end in course.log.bodies(ToolFinished)]
    assert outcomes == [("c0", "aborted"), ("c1", "ok"), ("c2", "aborted"), ("c3", "ok")]
    results = [message.text for message in course.log.messages if message.role == "tool"]
    assert (results[1], results[3]) == ("one", "three")
    assert course.state.phase is Phase.FINISHED
