from __future__ import annotations

from base64 import b64encode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.codecs.fields import Fields
from perdure.codecs.media import Media
from perdure.interop.formats.claude_code.messages import (
    UNREADABLE,
    assistant_of,
    content_of,
    said_by_person,
    said_by_tools,
)
from perdure.session.codec import encode
from perdure.session.ids import blob_hash
from perdure.session.media.inline import SCHEME
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
    decode_message,
)

SOURCE = {"type": "base64", "media_type": "image/png", "data": b64encode(b"pixels").decode()}


def parts_of(*blocks: object) -> tuple[object, ...]:
    parts = content_of({"content": list(blocks)}, Media())
    assert parts is not None
    return parts


def answer(message: Fields, **record: object) -> Message:
    parts = content_of(message, Media())
    assert parts is not None
    return assistant_of(record, message, parts)


def test_content_as_text_equals_content_as_list_of_blocks() -> None:
    assert content_of({"content": "hi"}, Media()) == (TextPart("hi"),)
    assert parts_of({"type": "text", "text": "hi"}, "bare") == (TextPart("hi"), TextPart("bare"))


def test_blocks_become_parts_without_signatures() -> None:
    parts = parts_of(
        {"type": "thinking", "thinking": "hm", "signature": "secret"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}},
    )
    assert parts == (
        ThinkingPart("hm"),
        ThinkingPart("", is_redacted=True),
        ToolCallPart("t1", "Bash", {"command": "ls"}),
    )


@pytest.mark.parametrize("kind", ["image", "document"])
def test_media_of_a_message_are_stored_as_media_parts(kind: str) -> None:
    media = Media()
    parts = content_of({"content": [{"type": kind, "source": SOURCE}]}, media)
    assert parts == (MediaPart("image/png", SCHEME + blob_hash(b"pixels"), 6),)
    assert media.blobs == (b"pixels",)


def test_remote_media_address_is_stored_unchanged() -> None:
    [part] = parts_of({"type": "image", "source": {"type": "url", "url": "https://x"}})
    assert isinstance(part, UnknownPart)
    assert msgspec.json.decode(part.raw)["source"]["url"] == "https://x"


def test_tool_result_can_be_a_text_or_a_list_of_blocks() -> None:
    text = {"type": "tool_result", "tool_use_id": "t1", "content": "out", "is_error": True}
    assert parts_of(text) == (ToolResultPart("t1", "out", is_error=True),)
    blocks = [{"type": "text", "text": "a"}, {"type": "image", "source": SOURCE}, {"type": "new"}]
    [part] = parts_of({"type": "tool_result", "tool_use_id": "t1", "content": blocks})
    assert isinstance(part, ToolResultPart)
    assert part.text == f"a\n{UNREADABLE}"
    assert len(part.media) == 1
    assert parts_of({"type": "tool_result", "tool_use_id": "t1"}) == (ToolResultPart("t1", ""),)


def test_results_and_text_of_record_are_separated() -> None:
    content = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}, "stop"]
    parts = content_of({"content": content}, Media()) or ()
    assert said_by_tools(parts) == (ToolResultPart("t", "x"),)
    assert said_by_person(parts) == (TextPart("stop"),)


@pytest.mark.parametrize("content", [None, 7, {"type": "text"}])
def test_message_without_content_is_read_as_none(content: object) -> None:
    assert content_of({"content": content}, Media()) is None


def test_answer_has_model_usage_and_stop_reason() -> None:
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 4,
    }
    message: Fields = {
        "content": "x",
        "model": "claude-opus-4-5",
        "stop_reason": "end_turn",
        "usage": usage,
    }
    assert answer(message) == Message(
        "assistant",
        (TextPart("x"),),
        model="anthropic:claude-opus-4-5",
        stop_reason="stop",
        usage=Usage(1, 2, 3, 4),
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("tool_use", "tool_calls"),
        ("max_tokens", "length"),
        ("refusal", "content_filter"),
        (None, "stop"),
    ],
)
def test_stop_reasons_of_the_file_format_are_translated(theirs: str | None, ours: str) -> None:
    assert answer({"content": "x", "stop_reason": theirs}).stop_reason == ours


def test_missing_stop_reason_is_derived_from_tool_calls() -> None:
    call: Fields = {"type": "tool_use", "id": "t", "name": "Bash", "input": {}}
    assert answer({"content": [call], "stop_reason": None}).stop_reason == "tool_calls"


def test_api_error_becomes_failed_answer() -> None:
    failed = answer({"content": "API Error", "model": "<synthetic>"}, isApiErrorMessage=True)
    assert (failed.stop_reason, failed.error, failed.model) == ("error", "API Error", None)


def test_text_written_by_claude_code_has_no_model() -> None:
    usage = {"input_tokens": 1}
    synthetic = answer({"content": "No response", "model": "<synthetic>", "usage": usage})
    assert synthetic.model is None
    assert synthetic.usage is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "id", "name", "input", "content", "source", "data"]),
            inner | st.sampled_from(["text", "tool_use", "tool_result", "image", "base64"]),
        )
    ),
    max_leaves=8,
)


@given(JSON, st.dictionaries(st.sampled_from(["model", "usage", "stop_reason"]), JSON))
def test_any_message_is_read_and_can_be_written(content: object, fields: Fields) -> None:
    message: Fields = {**fields, "content": content}
    parts = content_of(message, Media())
    if parts is not None:
        made = assistant_of({}, message, parts)
        assert decode_message(encode(made)) == made
