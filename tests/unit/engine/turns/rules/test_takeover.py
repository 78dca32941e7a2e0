"""Takeover of a dead process's turn, by the interrupted effect and its policy."""

from __future__ import annotations

from typing import cast

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.config import ToolFacts, TurnConfig
from perdure.engine.turns.effects import AwaitAnswer, CallModel, RunTool, effect_of
from perdure.engine.turns.state import Phase
from perdure.errors import ApprovalStale, ModelUnavailable
from perdure.session.ledger import InterruptPolicy, ModelCalled, ToolFinished, ToolStarted
from perdure.session.messages import ToolCallPart, assistant, tool_call
from perdure.session.notes import Answer, Question
from perdure.tools.approval import Bound, Judge, Ruling
from tests.fakes.turn_log import CONFIG, Course

CUT = inputs.Lost(has_begun=True, partial=assistant("So far, so"))


def interrupted(policy: InterruptPolicy) -> TurnConfig:
    return msgspec.structs.replace(CONFIG, on_interrupt=policy)


def in_a_tool(name: str) -> Course:
    course = Course()
    other = "never" if name == "retry" else name  # one that does not run beside the first
    course.happens(inputs.Answered(assistant(tool_call("c1", name), tool_call("c2", other))))
    return course


@pytest.mark.parametrize("policy", ["retry", "continue", "rollback", "ask"])
def test_interrupted_model_call_without_output_is_repeated(policy: InterruptPolicy) -> None:
    course = Course(interrupted(policy))
    course.happens(inputs.Lost())
    assert isinstance(effect_of(course.state), CallModel)
    assert course.log.bodies(ModelCalled)[-1].attempt == 2


def test_retry_policy_stores_partial_answer_outside_context() -> None:
    course = Course(interrupted("retry"))
    course.happens(CUT)
    assert "interrupted" in course.log.kinds
    assert [message.role for message in course.log.messages] == ["user"]
    assert isinstance(effect_of(course.state), CallModel)


def test_continue_policy_adds_partial_answer_to_context_and_requests_rest() -> None:
    course = Course(interrupted("continue"))
    course.happens(CUT)
    assert course.log.messages[-1].text == "So far, so"
    assert course.log.kinds[-2:] == ["custom_message", "model_called"]
    course.happens(inputs.Answered(assistant(" good.")))
    assert course.state.phase is Phase.FINISHED
    assert course.state.answer is not None
    assert course.state.answer.text == " good."


def test_continue_policy_without_partial_text_repeats_call() -> None:
    course = Course(interrupted("continue"))
    course.happens(inputs.Lost(has_begun=True))
    assert "custom_message" not in course.log.kinds
    assert isinstance(effect_of(course.state), CallModel)


def test_rollback_policy_removes_the_user_message_from_the_branch() -> None:
    course = Course(interrupted("rollback"))
    course.happens(CUT)
    assert course.log.kinds[-2:] == ["leaf", "turn_finished"]
    assert course.state.finished is not None
    assert course.state.finished.end == "interrupted"


@pytest.mark.parametrize(
    ("choice", "ends"),
    [("retry", "model_called"), ("continue", "model_called"), ("rollback", "turn_finished")],
)
def test_answer_of_a_person_decides_how_an_interrupted_turn_continues(
    choice: str, ends: str
) -> None:
    course = Course(interrupted("ask"))
    course.happens(CUT)
    asked = course.state.question
    assert asked is not None
    assert effect_of(course.state) == AwaitAnswer(asked.id)
    course.happens(inputs.Woken())
    assert course.log.kinds[-1] == "question"
    course.others_append(Answer(choice, "somebody"), asked.id)
    course.happens(inputs.Woken())
    assert course.log.kinds[-1] == ends


def test_interrupted_summary_is_always_repeated() -> None:
    config = msgspec.structs.replace(interrupted("rollback"), window_tokens=12)
    course = Course(config)
    course.happens(inputs.Lost(has_begun=True))
    called = course.log.bodies(ModelCalled)[-1]
    assert (called.purpose, called.attempt) == ("summary", 2)


def test_retryable_tool_runs_again_under_same_key() -> None:
    course = in_a_tool("retry")
    course.happens(inputs.Lost())
    assert course.log.bodies(ToolFinished)[-1].outcome == "unknown"
    first, second = course.log.bodies(ToolStarted)
    assert second.idempotency_key == first.idempotency_key
    assert (first.attempt, second.attempt) == (1, 2)
    course.happens(inputs.ToolReturned("at last"))
    course.happens(inputs.ToolReturned("the other"))
    results = [message.text for message in course.log.messages if message.role == "tool"]
    assert results == ["at last", "the other"]


def test_writing_tool_that_is_missing_here_waits_for_a_process_that_has_it() -> None:
    write = ToolFacts("write", "retry", is_async=True)
    config = msgspec.structs.replace(CONFIG, tools={"write": write})
    course = Course(config)
    course.happens(inputs.Answered(assistant(tool_call("c1", "write"))))
    course.config = msgspec.structs.replace(config, tools={})
    course.happens(inputs.Lost())
    asked = course.state.question
    assert asked is not None
    assert "does not have the tool" in asked.question.text
    course.others_append(Answer("retry", "somebody"), asked.id)
    course.happens(inputs.Woken())
    assert isinstance(effect_of(course.state), AwaitAnswer)
    again = course.state.question
    assert again is not None
    course.config = config
    course.others_append(Answer("retry", "somebody"), again.id)
    course.happens(inputs.Woken())
    assert [run.attempt for run in course.log.bodies(ToolStarted)] == [1, 2]


def test_tool_that_cannot_be_repeated_gets_an_unknown_outcome() -> None:
    course = in_a_tool("never")
    course.happens(inputs.Lost())
    assert "may or may not have taken effect" in course.log.messages[-1].text
    effect = effect_of(course.state)
    assert isinstance(effect, RunTool)
    assert effect.tool.started.id == "c2"


LOST = inputs.ToolReturned("gone", "unknown", "its server is gone", "tool_lost")
"""The process is alive, but it lost the connection to the tool."""


@pytest.mark.parametrize("policy", ["retry", "ask", "never"])
def test_call_of_a_disconnected_tool_is_handled_like_a_lost_call(
    policy: str,
) -> None:
    died, cut = in_a_tool(policy), in_a_tool(policy)
    died.happens(inputs.Lost())
    cut.happens(LOST)
    assert cut.log.kinds == died.log.kinds
    assert type(effect_of(cut.state)) is type(effect_of(died.state))
    assert cut.log.bodies(ToolFinished)[0].error == "its server is gone"


def test_tool_that_disconnects_repeatedly_gets_an_unknown_outcome() -> None:
    course = in_a_tool("retry")
    for _ in range(3):
        course.happens(LOST)
    attempts = [tool.attempt for tool in course.log.bodies(ToolStarted) if tool.id == "c1"]
    assert attempts == [1, 2, 3]
    assert "may or may not have taken effect" in course.log.messages[-1].text


@pytest.mark.parametrize("choice", ["retry", "skip", "done"])
def test_tool_with_ask_policy_follows_answer_of_person(choice: str) -> None:
    course = in_a_tool("ask")
    course.happens(inputs.Lost())
    question = course.log.bodies(Question)[-1]
    assert question.call_id == "c1"
    assert question.args_hash is not None
    asked = course.state.question
    assert asked is not None
    course.others_append(Answer(choice, "somebody", "it worked"), asked.id)
    course.happens(inputs.Woken())
    started = [(tool.id, tool.attempt) for tool in course.log.bodies(ToolStarted)]
    if choice == "retry":
        assert started == [("c1", 1), ("c1", 2)]
        return
    assert started == [("c1", 1), ("c2", 1)]
    told = course.log.messages[-1].text
    assert told == "it worked" if choice == "done" else "unknown" in told


def test_only_the_first_answer_to_a_question_is_used() -> None:
    course = in_a_tool("ask")
    course.happens(inputs.Lost())
    asked = course.state.question
    assert asked is not None
    course.others_append(Answer("skip", "one"), asked.id)
    course.others_append(Answer("retry", "two"), asked.id)
    course.happens(inputs.Lost())
    assert [tool.id for tool in course.log.bodies(ToolStarted)] == ["c1", "c2"]


def test_retry_wait_continues_after_process_death() -> None:
    course = Course()
    course.happens(inputs.CallFailed(ModelUnavailable("p:m", "down")))
    before = len(course.log.entries)
    course.happens(inputs.Lost())
    assert len(course.log.entries) == before
    assert course.state.phase is Phase.BACKOFF


class Judged(msgspec.Struct, frozen=True):
    """The current agent's decision about a call."""

    decision: str
    text: str = "no"
    grant: str | None = None
    error_code: str | None = None
    action: str | None = None
    preview: str | None = None
    choices: tuple[str, ...] = ()
    free_in: tuple[str, ...] = ()
    bound: None = None
    arguments: None = None
    diff: None = None


def judged_by(course: Course, decision: str) -> None:
    """From now on, the agent of `course` decides `decision` about each call."""

    def judge(*_: object) -> Judged:
        return Judged(decision)

    course.config = msgspec.structs.replace(course.config, judge=cast("Judge", judge))


def test_tool_that_is_now_forbidden_is_not_repeated_even_on_request() -> None:
    course = in_a_tool("ask")
    course.happens(inputs.Lost())
    asked = course.state.question
    assert asked is not None
    judged_by(course, "refuse")
    course.others_append(Answer("retry", "somebody"), asked.id)
    course.happens(inputs.Woken())
    started = [(tool.id, tool.attempt) for tool in course.log.bodies(ToolStarted)]
    assert started == [("c1", 1)]


@pytest.mark.parametrize(
    ("decision", "kind"), [("run", "tool_started"), ("refuse", "message"), ("ask", "question")]
)
def test_interrupted_tool_is_repeated_only_if_still_permitted(decision: str, kind: str) -> None:
    course = in_a_tool("retry")
    before = len(course.log.bodies(ToolStarted))
    judged_by(course, decision)
    course.happens(inputs.Lost())
    assert kind in course.log.kinds[-4:]
    assert len(course.log.bodies(ToolStarted)) == before + (decision == "run")


def test_call_changed_back_after_approval_is_asked_about_despite_earlier_grant() -> None:
    content = "first"

    def judge(_: ToolCallPart, granted: frozenset[str], __: Bound | None) -> Ruling:
        grant = f"write {content}"
        decision = "run" if grant in granted else "ask"
        return Ruling(decision, "may it?", grant=grant, bound=Bound({"content": content}))

    def answer(choice: str) -> None:
        asked = course.state.question
        assert asked is not None
        course.others_append(Answer(choice, "somebody"), asked.id)
        course.happens(inputs.Woken())

    course = Course(msgspec.structs.replace(CONFIG, judge=judge))
    course.happens(inputs.Answered(assistant(tool_call("c1", "ask"), tool_call("c2", "ask"))))
    answer("always")
    content = "second"
    course.happens(inputs.ToolReturned("done"))
    answer("allow")
    content = "first"
    refused = inputs.ToolReturned("", "refused", "changed", ApprovalStale.code)
    course.happens(refused)
    assert course.log.kinds[-1] == "question"
    assert len(course.log.bodies(ToolStarted)) == 2
