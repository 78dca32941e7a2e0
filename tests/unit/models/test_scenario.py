"""The reply to a request depends only on the request."""

from __future__ import annotations

from perdure.models.protocol import ModelRequest
from perdure.models.scenario import (
    Fail,
    Reply,
    Say,
    Scenario,
    Think,
    When,
    holds,
    reply_to,
    rest_of,
    said_already,
    situation_of,
)
from perdure.session.kinds import CONTINUE_TEXT
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    assistant,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.samples import case

SUMMARY = user("<conversation>\nUser: hi\n</conversation>\n\nSummarise it.")
CONVERSATION = (
    user("Plan the Trip"),
    assistant("Where to?"),
    user("Rome"),
    assistant("Looking.", tool_call("a", "search", {}), tool_call("b", "read_file", {})),
    tool_result("a", "three Hotels"),
    tool_result("b", "no such file", is_error=True),
)


def said(text: str) -> Reply:
    return Reply(steps=(Say(text),))


def does_hold(when: When, *messages: Message, system: str | None = None) -> bool:
    return holds(when, situation_of(ModelRequest("m", messages, system=system)))


def test_each_condition_checks_its_part_of_the_request() -> None:
    for when, is_true in [
        (When(), True),
        (When(nth=3), True),
        (When(nth=2), False),
        (When(round=2), True),
        (When(round=1), False),
        (When(user_contains="rome"), True),
        (When(user_contains="trip"), False),
        (When(system_contains="BRIEF"), True),
        (When(system_contains="long"), False),
        (When(after="tool"), True),
        (When(after="user"), False),
        (When(after_tool="search"), True),
        (When(after_tool="read_file"), True),
        (When(after_tool="write_file"), False),
        (When(last_tool_result_contains="hotels"), True),
        (When(last_tool_result_contains="no such"), True),
        (When(last_tool_result_contains="x"), False),
        (When(last_tool_result_is_error=True), True),
        (When(last_tool_result_is_error=False), False),
        (When(asks_summary=False), True),
        (When(asks_summary=True), False),
        (When(nth=3, user_contains="rome", after_tool="search"), True),
        (When(nth=3, user_contains="paris", after_tool="search"), False),
    ]:
        with case((when, is_true)):
            assert does_hold(when, *CONVERSATION, system="Be brief.") == is_true


def test_tool_result_conditions_need_a_tool_result() -> None:
    for when in (
        When(last_tool_result_is_error=False),
        When(last_tool_result_is_error=True),
        When(last_tool_result_contains=""),
        When(after_tool=""),
    ):
        assert not does_hold(when, user("x"))


def test_condition_ignores_text_added_before_the_user_message() -> None:
    message = Message(
        "user",
        (
            TextPart("<summary>They asked for a hotel.</summary>"),
            TextPart("And a train?"),
            MediaPart("image/png", "media://sha256-" + "0" * 64, 3),
        ),
    )
    assert does_hold(When(user_contains="train"), message)
    assert not does_hold(When(user_contains="hotel"), message)


def test_request_for_a_summary_is_recognised() -> None:
    assert does_hold(When(asks_summary=True), SUMMARY)
    assert not does_hold(When(asks_summary=True), SUMMARY, assistant("done"))
    assert not does_hold(When(asks_summary=True))


def test_empty_request_can_match_conditions() -> None:
    assert does_hold(When(nth=1, round=1, after="user", user_contains=""))


def test_first_matching_rule_has_priority_over_the_sequence() -> None:
    scenario = Scenario(
        name="x",
        rules=(
            Reply(steps=(Say("rule 1"),), when=When(user_contains="a")),
            Reply(steps=(Say("rule 2"),), when=When(user_contains="a b")),
        ),
        sequence=(said("first"), said("second")),
    )

    def chosen(*messages: Message) -> str | None:
        reply = reply_to(scenario, situation_of(ModelRequest("m", messages)))
        return None if reply is None else "".join(s.text for s in reply.steps if isinstance(s, Say))

    assert chosen(user("a b")) == "rule 1"
    assert chosen(user("x")) == "first"
    assert chosen(user("x"), assistant("y"), user("x")) == "second"
    assert chosen(user("x"), assistant("y"), user("x"), assistant("y"), user("x")) is None
    assert chosen(SUMMARY) is None


def test_rule_without_condition_matches_everything_except_summaries() -> None:
    scenario = Scenario(name="x", rules=(said("always"),))
    assert reply_to(scenario, situation_of(ModelRequest("m", (user("x"),)))) == said("always")
    assert reply_to(scenario, situation_of(ModelRequest("m", (SUMMARY,)))) is None


def test_summary_can_be_scripted() -> None:
    rule = Reply(steps=(Say("## Goal"),), when=When(asks_summary=True))
    scenario = Scenario(name="x", rules=(said("answer"), rule))
    assert reply_to(scenario, situation_of(ModelRequest("m", (SUMMARY,)))) == rule
    assert reply_to(scenario, situation_of(ModelRequest("m", (user("x"),)))) == said("answer")


CUT = (user("go"), assistant("One. "), user(CONTINUE_TEXT))


def test_continued_answer_is_counted_as_one_answer() -> None:
    assert does_hold(When(nth=1, round=1, user_contains="go", after="user"), *CUT)
    twice = (*CUT, assistant("Two."), user(CONTINUE_TEXT))
    assert does_hold(When(nth=1, round=1, user_contains="go"), *twice)
    assert does_hold(When(nth=2, round=2, user_contains="go"), *CUT, assistant("Two. Three."))


def test_continued_answer_contains_only_the_remaining_text() -> None:
    reply = Reply(steps=(Think("hm"), Say("One. Two."), Fail("rate_limited"), Say(" Three.")))
    assert said_already(CUT) == "One. "
    assert said_already((*CUT, assistant("Two."), user(CONTINUE_TEXT))) == "One. Two."
    assert said_already(CUT[:2]) == ""
    assert rest_of(reply, "One. ").steps == (Say("Two."), Fail("rate_limited"), Say(" Three."))
    assert rest_of(reply, "One. Two. T").steps == (Say("hree."),)
    assert rest_of(reply, "Something else") == rest_of(reply, "") == reply
