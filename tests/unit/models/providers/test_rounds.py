"""Which unfinished tool rounds are remembered, and for how long."""

from __future__ import annotations

from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart

from perdure.models.providers.rounds import RoundMemory, open_rounds
from perdure.models.stream import INVALID_JSON
from perdure.session.messages import assistant, tool_call, tool_result, user

MODEL = "anthropic:x"
ANSWER = ModelResponse(
    parts=[
        ThinkingPart("hm", signature="signed"),
        TextPart("Reading."),
        ToolCallPart("read", '{"path": ', "c1", provider_details={"thought_signature": "s"}),
    ]
)


def test_recalled_tool_call_has_the_arguments_of_the_log() -> None:
    rounds = RoundMemory()
    rounds.keep(MODEL, ANSWER)
    call = tool_call("c1", "read", {INVALID_JSON: '{"path": '})
    recalled = rounds.recall(assistant("Reading.", call, model=MODEL))
    assert recalled is not None
    thought, text, made = recalled.parts
    assert (thought, text) == (ANSWER.parts[0], ANSWER.parts[1])
    assert isinstance(made, ToolCallPart)
    assert made.args == {INVALID_JSON: '{"path": '}
    assert made.provider_details == {"thought_signature": "s"}


def test_remembered_answer_of_another_model_is_not_used() -> None:
    rounds = RoundMemory()
    rounds.keep(MODEL, ANSWER)
    assert rounds.recall(assistant(tool_call("c1", "read"), model="openai:y")) is None
    assert rounds.recall(assistant(tool_call("c2", "read"), model=MODEL)) is None
    assert rounds.recall(assistant(tool_call("c1", "read"))) is None


def test_round_memory_ignores_an_answer_without_tool_calls() -> None:
    rounds = RoundMemory()
    rounds.keep(MODEL, ModelResponse(parts=[ThinkingPart("hm", signature="s"), TextPart("Yes.")]))
    assert rounds.recall(assistant("Yes.", model=MODEL)) is None


def test_oldest_remembered_tool_rounds_are_dropped_first() -> None:
    rounds = RoundMemory(limit=2)
    for call in ("a", "b", "c"):
        rounds.keep(MODEL, ModelResponse(parts=[ToolCallPart("t", {}, call)]))
    known = [rounds.recall(assistant(tool_call(call, "t"), model=MODEL)) for call in "abc"]
    assert [answer is not None for answer in known] == [False, True, True]


def test_reasoning_from_tags_in_the_text_is_not_recalled() -> None:
    rounds = RoundMemory()
    parts = [
        ThinkingPart("in the text", id="content"),
        ThinkingPart("fox \ud83e\udd8a", id="reasoning"),
        ToolCallPart("t", {}, "a"),
    ]
    rounds.keep(MODEL, ModelResponse(parts=parts))
    recalled = rounds.recall(assistant(tool_call("a", "t"), model=MODEL))
    assert recalled is not None
    thoughts = [part.content for part in recalled.parts if isinstance(part, ThinkingPart)]
    assert thoughts == ["fox 🦊"]


def test_open_tool_rounds_begin_after_the_last_user_message() -> None:
    earlier = (user("x"), assistant("yes"))
    now = (assistant(tool_call("a", "t")), tool_result("a", "1"))
    assert list(open_rounds((*earlier, user("y"), *now))) == list(now)
    assert list(open_rounds((*earlier, user("y")))) == []
    assert list(open_rounds(now)) == list(now)


def test_user_message_after_a_tool_result_keeps_the_rounds_open() -> None:
    now = (assistant(tool_call("a", "t")), tool_result("a", "1"), user("Rather the other one."))
    assert list(open_rounds((user("y"), *now))) == list(now)
