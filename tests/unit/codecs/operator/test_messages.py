from __future__ import annotations

from base64 import b64encode

import pytest

from perdure.codecs.fields import Fields
from perdure.codecs.media import Media
from perdure.codecs.operator.messages import content_of, message_of, meta_of, usage_of
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)

PNG = b64encode(b"\x89PNG\r\n\x1a\n...").decode()


def said(role: str, *parts: object, **more: object) -> Fields:
    return {"contents": list(parts), "id": "m", "timestamp": 1.0, "role": role, **more}


def parts_of(*parts: object) -> tuple[Part, ...]:
    return content_of({"contents": list(parts)}, Media()) or ()


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "system"])
def test_message_roles_are_converted_to_perdure_roles(role: str) -> None:
    message = message_of(said(role, {"type": "text", "content": "x"}), Media())
    assert isinstance(message, Message)
    assert (message.role, message.text if role != "tool" else "x") == (role, "x")


@pytest.mark.parametrize("role", ["custom", "branch_summary", "compaction_summary"])
def test_messages_with_special_roles_become_extension_messages(role: str) -> None:
    message = message_of(said(role, {"type": "text", "content": "x"}), Media())
    assert isinstance(message, CustomMessage)
    assert message.custom_type == f"operator:{role}"


def test_message_with_an_unknown_role_or_no_content_is_read_as_none() -> None:
    assert message_of(said("oracle"), Media()) is None
    assert message_of({"role": "user"}, Media()) is None


def test_answer_has_usage_and_stop_reason() -> None:
    usage = {
        "input_tokens": 5,
        "output_tokens": 4,
        "cache_read_tokens": 3,
        "cache_write_tokens": 2,
        "cost": {"total": 0.0000025},
    }
    message = message_of(said("assistant", usage=usage, stop_reason="abort", error="x"), Media())
    assert message == Message(
        "assistant", (), stop_reason="aborted", usage=Usage(5, 4, 3, 2, 250), error="x"
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("stop", "stop"),
        ("length", "length"),
        ("tool_calls", "tool_calls"),
        ("content_filter", "content_filter"),
        ("abort", "aborted"),
        ("error", "error"),
        ("new", None),
    ],
)
def test_every_stop_reason_is_converted(theirs: str, ours: str | None) -> None:
    message = message_of(said("assistant", stop_reason=theirs, error=""), Media())
    assert isinstance(message, Message)
    assert (message.stop_reason, message.error) == (ours, None)


@pytest.mark.parametrize("cost", [{}, {"total": "1"}, {"total": -1}, {"total": 1e9}])
def test_implausible_cost_is_ignored(cost: dict[str, object]) -> None:
    assert usage_of({"input_tokens": 1, "cost": cost}) == Usage(input_tokens=1)


def test_usage_without_any_count_is_read_as_none() -> None:
    assert usage_of({"input_tokens": 0}) is None
    assert usage_of(None) is None


def test_thinking_is_read_without_its_signature() -> None:
    assert parts_of({"type": "thinking", "content": "hm", "signature": "s"}) == (
        ThinkingPart("hm"),
    )


def test_tool_calls_and_results_are_converted_to_parts() -> None:
    call = {"type": "tool_call", "id": "c", "name": "f", "kind": "read", "args": {"a": None}}
    result = {"type": "tool_result", "id": "c", "content": "no", "is_error": True}
    assert parts_of(call, result) == (
        ToolCallPart("c", "f", {"a": None}),
        ToolResultPart("c", "no", is_error=True),
    )


@pytest.mark.parametrize(
    "part",
    [
        {"type": "tool_call", "name": "f"},
        {"type": "tool_result", "content": "x"},
        {"type": "text"},
        {"type": "image"},
        {"type": "audio", "audio": "file:/tmp/a.wav"},
        {"type": "new"},
        7,
    ],
)
def test_unknown_part_is_kept(part: object) -> None:
    assert [type(found) for found in parts_of(part)] == [UnknownPart]


def test_one_part_can_contain_several_images() -> None:
    media = Media()
    address = f"data:image/png;base64,{PNG}"
    image = {"type": "image", "images": [PNG, address, "https://example.org/a.png", 5]}
    parts = content_of({"contents": [image]}, media) or ()
    assert [type(part) for part in parts] == [MediaPart, MediaPart, UnknownPart, UnknownPart]
    assert len(media.blobs) == 1


def test_audio_part_becomes_media() -> None:
    data = b64encode(b"RIFF0000WAVE").decode()
    [part] = parts_of({"type": "audio", "audio": data})
    assert isinstance(part, MediaPart)
    assert part.mime_type == "audio/wav"


def test_message_content_can_be_a_plain_text() -> None:
    assert content_of({"content": "hello"}, Media()) == (TextPart("hello"),)
    assert parts_of("hello") == (TextPart("hello"),)


def test_missing_gateway_fields_are_omitted() -> None:
    assert meta_of({"meta": {"reply_to": None, "reactions": [], "attachments": []}}) is None
    assert meta_of({"meta": {"reply_to": "1", "reactions": []}}) == {"reply_to": "1"}
    assert meta_of({}) is None
