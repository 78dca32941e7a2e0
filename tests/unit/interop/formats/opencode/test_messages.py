from __future__ import annotations

from base64 import b64encode

import pytest

from perdure.codecs.fields import Fields
from perdure.codecs.media import Media
from perdure.interop.formats.opencode.messages import (
    QUIET,
    said_by_person,
    steps_of,
    subagents_of,
    summary_in,
    usage_of,
)
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    user,
)

INFO: Fields = {"providerID": "anthropic", "modelID": "m"}
MODEL = "anthropic:m"
PNG = "data:image/png;base64," + b64encode(b"picture").decode()


def text(words: str, **more: object) -> Fields:
    return {"type": "text", "text": words, **more}


def tool(**state: object) -> Fields:
    return {"type": "tool", "callID": "c", "tool": "bash", "state": {"input": {"a": 1}, **state}}


def finish(reason: str, **tokens: object) -> Fields:
    return {"type": "step-finish", "reason": reason, "tokens": tokens, "cost": 0.5}


def steps(*parts: object, **info: object) -> list[Message]:
    return steps_of({**INFO, **info}, list(parts), Media())


def test_each_step_becomes_an_answer_with_its_results() -> None:
    done = tool(status="completed", output="fine")
    first, result, second = steps(
        {"type": "reasoning", "text": "hm"},
        text("I look."),
        done,
        finish("tool-calls", input=5, output=2),
        text("There."),
        finish("stop", input=9, output=1),
    )
    assert first == Message(
        "assistant",
        (ThinkingPart("hm"), TextPart("I look."), ToolCallPart("c", "bash", {"a": 1})),
        model=MODEL,
        stop_reason="tool_calls",
        usage=Usage(5, 2, cost_microcents=50_000_000),
    )
    assert result == Message("tool", (ToolResultPart("c", "fine", name="bash"),))
    assert (second.text, second.stop_reason) == ("There.", "stop")


def test_failed_and_running_calls_are_converted() -> None:
    _, failed = steps(tool(status="error", error="no"))
    assert failed.parts == (ToolResultPart("c", "no", is_error=True, name="bash"),)
    [running] = steps(tool(status="running"))
    assert running.tool_calls == (ToolCallPart("c", "bash", {"a": 1}),)


def test_media_of_a_result_are_stored() -> None:
    image = {"type": "file", "mime": "image/png", "url": PNG}
    page = {"type": "file", "mime": "text/html", "url": "data:text/html;base64,YQ=="}
    _, message = steps(tool(status="completed", output="", attachments=[image, page, 5]))
    [result] = message.parts
    assert isinstance(result, ToolResultPart)
    assert [part.mime_type for part in result.media] == ["image/png"]


@pytest.mark.parametrize(
    ("error", "reason", "words"),
    [
        ({"name": "MessageAbortedError", "data": {"message": "stop"}}, "aborted", "stop"),
        ({"name": "APIError", "data": {}}, "error", "APIError"),
        ({}, "error", None),
    ],
)
def test_error_of_last_step_is_stored(error: object, reason: str, words: str | None) -> None:
    [message] = steps(text("I was"), error=error)
    assert (message.stop_reason, message.error) == (reason, words)


def test_answer_without_steps_is_one_message() -> None:
    assert steps() == [Message("assistant", (), model=MODEL)]
    [answer] = steps(text("x"), finish="stop", tokens={"input": 1, "output": 2})
    assert (answer.stop_reason, answer.usage) == ("stop", Usage(1, 2))


def test_reasoning_counts_as_output_in_every_version() -> None:
    old = {"input": 10, "output": 9, "reasoning": 4, "cache": {"read": 3, "write": 2}}
    new = {**old, "output": 5, "total": 24}
    assert usage_of({"tokens": old}) == usage_of({"tokens": new}) == Usage(10, 9, 3, 2)
    assert usage_of({}) is None


def test_user_message_has_text_and_attachments() -> None:
    image = {"type": "file", "mime": "image/png", "url": PNG}
    elsewhere = {"type": "file", "mime": "image/png", "url": "file:///a.png"}
    task = {"type": "subtask", "prompt": "Count", "agent": "x", "description": "y"}
    message = said_by_person([text("a"), image, elsewhere, task, 7], Media())
    assert isinstance(message, Message)
    assert [type(part) for part in message.parts] == [
        *(TextPart, MediaPart, UnknownPart, TextPart, UnknownPart)
    ]


def test_text_added_by_program_is_not_user_text() -> None:
    added = said_by_person([text("Called the Read tool", synthetic=True)], Media())
    assert isinstance(added, CustomMessage)
    assert (added.is_displayed, added.in_context) == (False, True)
    both = said_by_person([text("a"), text("b", synthetic=True)], Media())
    assert isinstance(both, Message)
    assert both.text == "a\n\nb"
    assert said_by_person([text("a"), text("b", ignored=True)], Media()) == user("a")


@pytest.mark.parametrize("kind", sorted(QUIET))
def test_message_with_only_empty_parts_is_converted_to_none(kind: str) -> None:
    assert said_by_person([{"type": kind}], Media()) is None
    [answer, *_] = steps({"type": kind})
    assert answer.parts == ()


def test_summary_is_the_joined_text_of_its_parts() -> None:
    assert summary_in([text("a"), {"type": "step-start"}, text(""), text("b"), 5]) == "a\n\nb"


def test_session_id_of_a_subagent_is_read_from_the_call() -> None:
    assert subagents_of([text("a"), tool(metadata={"sessionId": "x"})]) == {"subagent": "x"}
    assert subagents_of([tool(), 5]) is None
