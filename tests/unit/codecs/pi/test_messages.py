from __future__ import annotations

from base64 import b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.fields import Fields
from perdure.codecs.media import Media
from perdure.codecs.pi.messages import (
    BASH,
    ROLES,
    UNREADABLE_MEDIA,
    message_of,
    model_name,
    nested_usage,
    retained_of,
    usage_of,
)
from perdure.session.codec import encode
from perdure.session.ids import blob_hash
from perdure.session.kinds import CustomMessage
from perdure.session.media.inline import SCHEME
from perdure.session.messages import (
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    decode_message,
    user,
)

PICTURE = {"type": "image", "data": b64encode(b"pixels").decode(), "mimeType": "image/png"}


def read(**fields: object) -> Message | CustomMessage | None:
    return message_of(fields, Media())


def test_message_content_can_be_text_or_a_list_of_parts() -> None:
    assert read(role="user", content="hi") == user("hi")
    assert read(role="user", content=[{"type": "text", "text": "hi"}]) == user("hi")


def test_signatures_of_an_answer_are_not_read() -> None:
    answer = read(
        role="assistant",
        content=[
            {"type": "thinking", "thinking": "hm", "thinkingSignature": "secret"},
            {"type": "thinking", "thinking": "", "redacted": True, "thinkingSignature": "secret"},
            {"type": "text", "text": "yes", "textSignature": "secret"},
            {
                "type": "toolCall",
                "id": "c1",
                "name": "read",
                "arguments": {"path": "x"},
                "thoughtSignature": "secret",
                "partialJson": '{"pa',
            },
        ],
    )
    assert isinstance(answer, Message)
    assert answer.parts == (
        ThinkingPart("hm"),
        ThinkingPart("", is_redacted=True),
        TextPart("yes"),
        ToolCallPart("c1", "read", {"path": "x"}),
    )
    assert b"secret" not in encode(answer)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("toolUse", "tool_calls"),
        ("error", "error"),
        ("aborted", "aborted"),
        ("something new", None),
        (None, None),
    ],
)
def test_stop_reasons_of_the_file_format_are_translated(
    theirs: str | None, ours: str | None
) -> None:
    answer = read(role="assistant", content=[], stopReason=theirs)
    assert isinstance(answer, Message)
    assert answer.stop_reason == ours


def test_model_error_and_usage_are_converted() -> None:
    answer = read(
        role="assistant",
        content=[],
        provider="anthropic",
        model="claude-sonnet-4-5",
        errorMessage="overloaded",
        usage={
            "input": 3,
            "output": 17,
            "cacheRead": 5,
            "cacheWrite": 1684,
            "totalTokens": 1709,
            "cost": {"input": 0.000009, "total": 0.00658},
        },
    )
    assert isinstance(answer, Message)
    assert answer.model == "anthropic:claude-sonnet-4-5"
    assert answer.error == "overloaded"
    assert answer.usage == Usage(3, 17, 5, 1684, 658_000)


def test_cost_is_rounded_to_a_hundred_millionth_of_a_dollar() -> None:
    usage = usage_of({"input": 1, "cost": {"total": 0.000005}})
    assert usage is not None
    assert usage.cost_microcents == 500


def test_usage_without_tokens_is_read_as_none() -> None:
    assert usage_of({"input": 0, "output": 0, "cost": {"total": 0}}) is None
    assert usage_of(None) is None


def test_record_without_a_price_has_unknown_cost() -> None:
    for cost in (None, {}, {"total": "free"}, {"total": -1}):
        usage = usage_of({"input": 1, "cost": cost})
        assert usage is not None
        assert usage.cost_microcents is None


def test_model_name_is_built_from_the_known_parts() -> None:
    assert model_name("openai", "gpt") == "openai:gpt"
    assert model_name(None, "gpt") == "gpt"
    assert model_name(None, None) is None


def test_texts_of_a_tool_result_are_joined_and_media_are_kept() -> None:
    media = Media()
    fields: Fields = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "shot",
        "content": [{"type": "text", "text": "a"}, PICTURE, {"type": "text", "text": "b"}],
        "isError": True,
        "details": {"diff": "never for the model"},
    }
    result = message_of(fields, media)
    assert isinstance(result, Message)
    [part] = result.parts
    assert isinstance(part, ToolResultPart)
    assert (part.call_id, part.name, part.text, part.is_error) == ("c1", "shot", "a\nb", True)
    assert [each.handle for each in part.media] == [SCHEME + blob_hash(b"pixels")]
    assert media.blobs == (b"pixels",)


def test_image_without_base64_is_kept_unchanged() -> None:
    broken = {**PICTURE, "data": "!"}
    message = read(role="user", content=[broken])
    assert isinstance(message, Message)
    [part] = message.parts
    assert isinstance(part, UnknownPart)
    assert msgspec.json.decode(part.raw) == broken
    result = read(role="toolResult", toolCallId="c", content=[broken])
    assert isinstance(result, Message)
    assert result.text == UNREADABLE_MEDIA


def test_private_shell_command_of_the_user_is_not_in_the_context() -> None:
    ran = read(role="bashExecution", command="ls", output="a```b", exitCode=2, truncated=True)
    assert isinstance(ran, CustomMessage)
    assert (ran.custom_type, ran.in_context) == (BASH, True)
    [part] = ran.parts
    assert isinstance(part, TextPart)
    assert "````\na```b\n````" in part.text
    assert "exit code 2" in part.text
    assert "cut" in part.text
    private = read(role="bashExecution", command="ls", output="", excludeFromContext=True)
    assert isinstance(private, CustomMessage)
    assert not private.in_context


@pytest.mark.parametrize("role", ["custom", "hookMessage"])
def test_messages_of_extensions_become_custom_messages(role: str) -> None:
    message = read(role=role, customType="todo", content="x", display=False, details=[1])
    assert message == CustomMessage("todo", (TextPart("x"),), is_displayed=False, details=[1])


@pytest.mark.parametrize("role", sorted(ROLES - {"bashExecution"}))
def test_message_without_content_is_read_as_none(role: str) -> None:
    assert read(role=role) is None
    assert read(role=role, content=7) is None


@pytest.mark.parametrize("role", [None, "system", "narrator", 7])
def test_message_with_an_unknown_role_is_read_as_none(role: object) -> None:
    assert read(role=role, content="x") is None


def test_retained_tail_contains_only_messages_that_the_model_receives() -> None:
    tail: list[object] = [
        {"role": "user", "content": "q"},
        {"role": "bashExecution", "command": "ls", "output": "", "excludeFromContext": True},
        {"role": "custom", "customType": "todo", "content": "x"},
        {"role": "compactionSummary", "summary": "before"},
        {"role": "unheard of"},
        "nonsense",
    ]
    assert retained_of(tail, Media()) == (user("q"), user("x"), user("before"))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "arguments", "data", "content", "x"]),
            inner | st.sampled_from(["text", "toolCall", "image", "thinking"]),
        )
    ),
    max_leaves=8,
)
KEYS = [
    *("content", "usage", "stopReason", "provider", "model", "toolCallId", "isError"),
    *("command", "output", "exitCode", "customType", "summary", "details", "errorMessage"),
]


@given(st.sampled_from(sorted(ROLES)), st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_message_is_read_and_can_be_written(role: str, fields: Fields) -> None:
    message = read(**{**fields, "role": role})
    if isinstance(message, Message):
        assert decode_message(encode(message)) == message
    elif message is not None:
        msgspec.json.decode(encode(message), type=CustomMessage)


def test_nested_usage_is_read_only_from_tool_results() -> None:
    assert nested_usage({"role": "toolResult", "usage": {"input": 1}}) == {"usage": {"input": 1}}
    assert nested_usage({"role": "assistant", "usage": {"input": 1}}) is None
    assert nested_usage({"role": "toolResult", "usage": 5}) is None
    assert nested_usage({}) is None
