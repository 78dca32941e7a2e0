from __future__ import annotations

from base64 import b64encode

import msgspec
import pytest

from perdure.codecs.fields import Fields
from perdure.codecs.media import Media
from perdure.interop.formats.codex.messages import (
    INJECTED,
    READ_ITEMS,
    body_of,
    retained_of,
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

MODEL = "openai:m"
PNG = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n").decode()


def read(**item: object) -> Message | CustomMessage | None:
    return body_of(item, Media(), MODEL)


def call_of(**item: object) -> ToolCallPart:
    message = read(**item)
    assert isinstance(message, Message)
    assert (message.role, message.model, message.stop_reason) == ("assistant", MODEL, "tool_calls")
    [part] = message.parts
    assert isinstance(part, ToolCallPart)
    return part


def result_of(output: object) -> ToolResultPart:
    message = read(type="function_call_output", call_id="c", output=output)
    assert isinstance(message, Message)
    [part] = message.parts
    assert isinstance(part, ToolResultPart)
    return part


def test_messages_of_user_and_model_are_read() -> None:
    assert read(type="message", role="user", content=[{"type": "input_text", "text": "x"}]) == (
        user("x")
    )
    answer = read(type="message", role="assistant", content=[{"type": "output_text", "text": "y"}])
    assert answer == Message("assistant", (TextPart("y"),), MODEL, "stop")


@pytest.mark.parametrize("beginning", INJECTED)
def test_injected_user_messages_are_recognized(beginning: str) -> None:
    body = read(type="message", role="user", content=[{"text": f"{beginning}\nmore"}])
    assert isinstance(body, CustomMessage)
    assert (body.custom_type, body.is_displayed, body.in_context) == ("codex:context", False, True)


def test_images_anywhere_in_a_record_become_media() -> None:
    image = {"type": "input_image", "image_url": PNG}
    message = read(type="message", role="user", content=[image])
    assert message is not None
    assert [type(part) for part in message.parts] == [MediaPart]
    assert len(result_of([{"type": "input_text", "text": "x"}, image]).media) == 1
    made = read(type="image_generation_call", result=PNG, revised_prompt="apples")
    assert isinstance(made, CustomMessage)
    assert not made.in_context
    assert [type(part) for part in made.parts] == [TextPart, MediaPart]


def test_remote_image_is_stored_unchanged() -> None:
    image = {"type": "input_image", "image_url": "https://example.org/a.png"}
    message = read(type="message", role="user", content=[image, 7, "text"])
    assert message is not None
    assert [type(part) for part in message.parts] == [UnknownPart, UnknownPart, TextPart]
    assert read(type="image_generation_call", result=None) is None


def test_only_readable_reasoning_is_stored() -> None:
    summary = [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]
    message = read(
        type="reasoning", summary=summary, content=[{"text": "c"}], encrypted_content="x"
    )
    assert message is not None
    assert message.parts == (ThinkingPart("a\n\nb\n\nc"),)
    hidden = read(type="reasoning", summary=[], encrypted_content="x")
    assert hidden is not None
    assert hidden.parts == (ThinkingPart("", is_redacted=True),)


@pytest.mark.parametrize(
    ("arguments", "args"),
    [
        ('{"a":1}', {"a": 1}),
        ("", {}),
        ("not json", {"arguments": "not json"}),
        ("[1]", {"arguments": "[1]"}),
        ({"a": 1}, {"a": 1}),
        (None, {}),
    ],
)
def test_tool_call_arguments_are_read_from_json_in_a_string(
    arguments: object, args: Fields
) -> None:
    call = call_of(type="function_call", name="f", arguments=arguments, call_id="c")
    assert call == ToolCallPart("c", "f", args)


def test_namespace_of_a_codex_tool_is_part_of_its_name() -> None:
    call = call_of(type="function_call", name="f", namespace="mcp__x__", arguments="", call_id="c")
    assert call.name == "mcp__x__f"


def test_custom_and_shell_calls_become_tool_calls() -> None:
    assert call_of(type="custom_tool_call", name="apply_patch", input="x", call_id="c") == (
        ToolCallPart("c", "apply_patch", {"input": "x"})
    )
    shell = {"type": "exec", "command": ["ls"], "timeout_ms": None}
    assert call_of(type="local_shell_call", id="c", action=shell) == (
        ToolCallPart("c", "local_shell", {"command": ["ls"]})
    )
    assert call_of(type="tool_search_call", call_id="c", arguments={"query": "x"}) == (
        ToolCallPart("c", "tool_search", {"query": "x"})
    )


@pytest.mark.parametrize(
    ("output", "text", "is_error"),
    [
        ("fine", "fine", False),
        ("Exit code: 0\nfine", "Exit code: 0\nfine", False),
        ("Exit code: 127\n", "Exit code: 127\n", True),
        ('{"output":"x","metadata":{"exit_code":0}}', None, False),
        ('{"output":"x","metadata":{"exit_code":2}}', None, True),
        ('{"output":', None, False),
        ({"content": "x", "success": False}, "x", True),
        ({"content": [{"text": "x"}], "success": True}, "x", False),
        ([{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}], "a\nb", False),
    ],
)
def test_tool_result_is_the_text_that_was_sent_to_the_model(
    output: object, text: str, is_error: bool
) -> None:
    result = result_of(output)
    assert result.text == (output if text is None else text)
    assert result.is_error is is_error


def test_tool_search_output_becomes_tool_result() -> None:
    message = read(type="tool_search_output", call_id="c", tools=[{"name": "f"}])
    assert message == Message("tool", (ToolResultPart("c", '[{"name":"f"}]'),))


@pytest.mark.parametrize("kind", sorted(READ_ITEMS - {"reasoning"}))
def test_incomplete_codex_item_is_ignored(kind: str) -> None:
    assert read(type=kind) is None


def test_unknown_codex_item_is_ignored() -> None:
    assert read(type="song") is None
    assert read() is None


def test_messages_retained_by_a_compaction_exclude_the_summary() -> None:
    history = [
        {"type": "message", "role": "user", "content": [{"text": "<user_instructions>x"}]},
        {"type": "message", "role": "user", "content": [{"text": "a"}]},
        {"type": "message", "role": "user", "content": [{"text": "It was: SUM"}]},
        {"type": "ghost_snapshot"},
        5,
    ]
    kept = retained_of(history, "SUM", Media())
    assert kept == (user("<user_instructions>x"), user("a"))
    assert len(retained_of(history, "", Media())) == 3


def test_cache_write_tokens_do_not_count_as_input() -> None:
    last = {"input_tokens": 10, "cached_input_tokens": 4, "cache_write_input_tokens": 3}
    assert usage_of({"last_token_usage": last}) == Usage(3, 0, 4, 3)
    assert usage_of({"last_token_usage": {"input_tokens": 0}}) is None
    assert usage_of({}) is None


def test_surrogate_half_in_arguments_is_replaced() -> None:
    call = call_of(type="function_call", name="f", arguments=r'{"a":"\ud800"}', call_id="c")
    assert msgspec.json.encode(call.args) == '{"a":"\ufffd"}'.encode()
