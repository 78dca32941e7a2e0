from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from perdure.errors import UnsupportedVersion
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    assistant,
    decode_message,
    system,
    thinking,
    tool_call,
    tool_result,
    user,
    with_unknown_parts,
)

PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10)


def test_message_helpers_build_expected_messages() -> None:
    assert user("Hello") == Message("user", (TextPart("Hello"),))
    assert user("See", PICTURE, "this") == Message(
        "user", (TextPart("See"), PICTURE, TextPart("this"))
    )
    assert system("Be brief.") == Message("system", (TextPart("Be brief."),))
    assert assistant("…", thinking("Hm"), tool_call("c1", "look", {"x": 1})) == Message(
        "assistant",
        (TextPart("…"), ThinkingPart("Hm"), ToolCallPart("c1", "look", {"x": 1})),
        stop_reason="tool_calls",
    )
    assert tool_result("c1", "seen", is_error=True) == Message(
        "tool", (ToolResultPart("c1", "seen", is_error=True),)
    )
    assert tool_call("c1", "look").args == {}


def test_default_stop_reason_of_answer_depends_on_calls() -> None:
    assert assistant("Hi").stop_reason == "stop"
    assert assistant(tool_call("c", "t")).stop_reason == "tool_calls"
    assert assistant("Hi", stop_reason="length").stop_reason == "length"


def test_text_of_a_message_excludes_its_reasoning() -> None:
    said = assistant("One", thinking("Hm"), "", "Two", tool_call("c", "t"))
    assert said.text == "One\n\nTwo"
    assert tool_result("c", "seen").text == "seen"
    assert Message("user", ()).text == ""


def test_tool_calls_of_a_message_are_in_order() -> None:
    first, second = tool_call("a", "t"), tool_call("b", "t")
    assert assistant(first, "…", second).tool_calls == (first, second)


def test_usage_adds_up_and_unknown_price_remains_unknown() -> None:
    one = Usage(1, 2, 3, 4)
    assert one.total_tokens == 10
    assert one + one == Usage(2, 4, 6, 8)
    assert (one + Usage(cost_microcents=5)).cost_microcents == 5
    assert (Usage(cost_microcents=6) + Usage(cost_microcents=5)).cost_microcents == 11
    assert (one + one).cost_microcents is None


def test_unknown_part_is_kept_in_order() -> None:
    body = b'{"role":"user","parts":[{"type":"smell","x":1e400},{"type":"text","text":"a"}],"n":1}'
    assert decode_message(body) == Message(
        "user", (UnknownPart(msgspec.Raw(b'{"type":"smell","x":1e400}')), TextPart("a"))
    )


def test_incomplete_message_part_is_read_as_unknown_part() -> None:
    message = decode_message(b'{"role":"user","parts":[{"type":"text"}]}')
    assert message.parts == (UnknownPart(msgspec.Raw(b'{"type":"text"}')),)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"text"',
        b"{}",
        b'{"role":"user"}',
        b'{"role":"king","parts":[]}',
        b'{"role":"user","parts":{}}',
        b'{"role":"user","parts":[{"type":"smell"}],"usage":7}',
        b'{"role":"user","parts":[],"stop_reason":"tired"}',
        b'{"role":"user","parts":[{"type":"text","text":"\xff"}]}',
    ],
)
def test_value_that_is_not_a_message_is_rejected_by_the_decoder(body: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the reader's own message, whatever it says
        decode_message(body)


def test_message_of_a_newer_version_is_rejected() -> None:
    with pytest.raises(UnsupportedVersion, match="version 2"):
        decode_message(b'{"role":"user","parts":[]}', 2)


def test_unknown_message_parts_are_found_in_every_entry_kind() -> None:
    part = b'{"type":"smell"}'
    message = b'{"role":"user","parts":[' + part + b"]}"
    for body in (message, b'{"partial":' + message + b"}", b'{"retained":[' + message + b"]}"):
        assert b'{"type":"unknown","raw":' + part + b"}" in with_unknown_parts(body)
    assert with_unknown_parts(b'{"a": 1.50}') == b'{"a":1.50}'


NOT_TEXT: Any = 5


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: tool_result("c1", NOT_TEXT), "the result of a tool is a str, not int"),
        (lambda: tool_result(NOT_TEXT, "x"), "the id of a tool call is a str, not int"),
        (lambda: tool_result("c1", "x", is_error=NOT_TEXT), "is_error is a bool, not int"),
        (lambda: tool_result("c1", "x", name=NOT_TEXT), "the name of a tool is a str, not int"),
        (lambda: tool_call(NOT_TEXT, "x"), "the id of a tool call is a str, not int"),
        (lambda: tool_call("c1", NOT_TEXT), "the name of a tool is a str, not int"),
        (lambda: tool_call("c1", "x", NOT_TEXT), "arguments of a tool call is a Mapping, not int"),
        (lambda: thinking(NOT_TEXT), "the text of a thought is a str, not int"),
        (lambda: system(NOT_TEXT), "a message is made of text, not of int"),
    ],
)
def test_part_that_cannot_be_decoded_is_rejected(make: Callable[[], object], told: str) -> None:
    with pytest.raises(TypeError, match=told):
        make()


@pytest.mark.parametrize("content", [5, None, {"a": 1}, ["a"], b"a"])
def test_message_accepts_only_text_and_parts(content: Any) -> None:
    with pytest.raises(TypeError, match="a message is made of text"):
        user(content)
    with pytest.raises(TypeError, match="a message is made of text"):
        assistant(content)
