"""A question is about one exact call; its approval depends only on the answer."""

from __future__ import annotations

import msgspec
import pytest

from perdure.engine.turns import inputs
from perdure.engine.turns.effects import AwaitAnswer, RunTool, effect_of
from perdure.engine.turns.rules.questions import args_hash
from perdure.session.ledger import ToolFinished, ToolStarted
from perdure.session.messages import ToolCallPart, assistant, tool_call
from perdure.session.notes import Answer, GrantRevoked, Question
from perdure.tools.approval import Bound, Ruling
from tests.fakes.turn_log import CONFIG, Course


class Said(Ruling, frozen=True):
    """A ruling with a default text."""

    text: str = "May it?"


def course_with(*rulings: Said) -> Course:
    """Return a turn whose judge returns ``rulings[n]`` for a call with the argument ``n``."""

    def judge(call: ToolCallPart, granted: frozenset[str], bound: Bound | None) -> Ruling:
        ruling = rulings[int(str(call.args["n"]))]
        return Said("run") if ruling.grant in granted else ruling

    course = Course(msgspec.structs.replace(CONFIG, judge=judge))
    calls = [tool_call(f"c{n}", "never", {"n": n}) for n in range(len(rulings))]
    course.happens(inputs.Answered(assistant(*calls)))
    return course


def answered(course: Course, choice: str, note: str | None = None) -> None:
    question = course.state.question
    assert question is not None
    course.others_append(Answer(choice, "me", note), question.id)
    course.happens(inputs.Woken())


def test_call_that_needs_approval_starts_after_the_answer() -> None:
    course = course_with(Said("ask"))
    assert isinstance(effect_of(course.state), AwaitAnswer)
    (asked,) = course.log.bodies(Question)
    assert (asked.topic, asked.choices) == ("approval", ("allow", "deny"))
    assert (asked.call_id, asked.args_hash) == ("c0", args_hash({"n": 0}))
    assert course.log.bodies(ToolStarted) == []
    answered(course, "allow")
    assert isinstance(effect_of(course.state), RunTool)


def test_allowed_call_whose_tool_is_missing_here_waits_for_a_process_that_has_it() -> None:
    course = course_with(Said("ask"))
    config = course.config
    course.config = msgspec.structs.replace(config, tools={})
    answered(course, "allow")
    answered(course, "allow")
    assert isinstance(effect_of(course.state), AwaitAnswer)
    first, *again = course.log.bodies(Question)
    assert [each.text.count("does not have the tool") for each in again] == [1, 1]
    assert all(msgspec.structs.replace(each, text=first.text) == first for each in again)
    course.config = config
    answered(course, "allow")
    assert [tool.id for tool in course.log.bodies(ToolStarted)] == ["c0"]


def test_denied_call_gets_a_result_and_the_next_call_runs() -> None:
    course = course_with(Said("ask"), Said("run"))
    answered(course, "deny", "not today")
    refused = course.log.bodies(ToolFinished)[0]
    assert (refused.outcome, refused.error_code) == ("refused", "not_approved")
    assert "not today" in (refused.error or "")
    assert course.log.bodies(ToolStarted)[0].id == "c1"


def test_call_refused_by_policy_asks_no_question() -> None:
    course = course_with(Said("refuse", "not in this mode", error_code="tool_denied"))
    assert course.log.bodies(Question) == []
    assert course.log.bodies(ToolFinished)[0].error == "not in this mode"
    assert course.state.correctable_rounds == 1


def test_call_that_was_always_allowed_asks_no_second_question() -> None:
    course = course_with(Said("ask", grant="a"), Said("ask", grant="a"), Said("ask", grant="b"))
    assert course.log.bodies(Question)[0].choices == ("allow", "always", "deny")
    answered(course, "always")
    course.happens(inputs.ToolReturned("one"))
    assert isinstance(effect_of(course.state), RunTool)
    course.happens(inputs.ToolReturned("two"))
    assert isinstance(effect_of(course.state), AwaitAnswer)
    assert course.state.granted == {"a"}
    course.others_append(GrantRevoked("a"))
    assert course.state.granted == set()


def test_permissions_granted_in_a_turn_apply_to_the_next_turn_until_revoked() -> None:
    course = course_with(Said("run"))
    course.happens(inputs.ToolReturned("one"))
    course.happens(inputs.Answered(assistant("done")))
    begin = inputs.Begin(course.log.messages[0], 2, None, 10, grants=("a", "b"))
    course.happens(begin)
    assert course.state.granted == {"a", "b"}
    course.others_append(GrantRevoked())
    assert course.state.granted == set()


@pytest.mark.parametrize("happened", [inputs.Lost(), inputs.Woken()])
def test_unanswered_question_keeps_turn_waiting(happened: inputs.Input) -> None:
    course = course_with(Said("ask"))
    before = course.state
    course.happens(happened)
    assert course.state == before
