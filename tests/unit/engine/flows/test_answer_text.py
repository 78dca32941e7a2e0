from __future__ import annotations

from perdure.engine.flows.answer_text import AnswerText, said_in
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolResultPart, user


def says(*texts: str, is_cut: bool = False) -> Message:
    parts = tuple(TextPart(text) for text in texts)
    return Message("assistant", parts, stop_reason="aborted" if is_cut else "stop")


def test_the_newest_answer_is_what_was_said() -> None:
    assert said_in([user("go"), says("one"), says("two")]) == AnswerText("two")


def test_an_answer_that_was_cut_off_goes_on_where_it_stops() -> None:
    cut = [user("go"), says("```hand", is_cut=True)]
    assert said_in(cut) == AnswerText("```hand", is_cut=True)
    assert said_in([*cut, says("off\na", is_cut=True), says(": b")]) == AnswerText(
        "```handoff\na: b"
    )


def test_a_tools_result_leaves_what_was_said_and_a_persons_words_do_not() -> None:
    result = Message("tool", (ToolResultPart("c", "done"),))
    assert said_in([says("I look."), result]) == AnswerText("I look.")
    assert said_in([says("It was stopped", is_cut=True), user("go on")]) == AnswerText()


def test_what_was_thought_was_not_said() -> None:
    thought = Message("assistant", (ThinkingPart("hm"), TextPart("yes")), stop_reason="stop")
    assert said_in([thought]) == AnswerText("yes")
