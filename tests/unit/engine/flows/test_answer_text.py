from __future__ import annotations

from perdure.engine.flows.answer_text import AnswerText, said_in
from perdure.session.messages import Message, TextPart, ThinkingPart, ToolResultPart, user


def says(*texts: str, is_cut: bool = False) -> Message:
    parts = tuple(TextPart(text) for text in texts)
    return Message("assistant", parts, stop_reason="aborted" if is_cut else "stop")


def test_answer_text_is_the_text_of_the_newest_answer() -> None:
    assert said_in([user("go"), says("one"), says("two")]) == AnswerText("two")


def test_interrupted_answer_is_joined_with_its_continuation() -> None:
    cut = [user("go"), says("```hand", is_cut=True)]
    assert said_in(cut) == AnswerText("```hand", is_cut=True)
    assert said_in([*cut, says("off\na", is_cut=True), says(": b")]) == AnswerText(
        "```handoff\na: b"
    )


def test_user_message_resets_the_answer_text() -> None:
    result = Message("tool", (ToolResultPart("c", "done"),))
    assert said_in([says("I look."), result]) == AnswerText("I look.")
    assert said_in([says("It was stopped", is_cut=True), user("go on")]) == AnswerText()


def test_reasoning_is_not_part_of_answer() -> None:
    thought = Message("assistant", (ThinkingPart("hm"), TextPart("yes")), stop_reason="stop")
    assert said_in([thought]) == AnswerText("yes")
