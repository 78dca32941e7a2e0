"""Values as the JSON data of events."""

from __future__ import annotations

import msgspec
import pytest

from perdure.events.plain_json import camel, fields_of, plain
from perdure.session.messages import (
    ThinkingPart,
    ToolCallPart,
    UnknownPart,
    Usage,
    assistant,
    tool_call,
)
from perdure.session.notes import LeafMoved, Question


@pytest.mark.parametrize(
    ("name", "spelled"),
    [("text", "text"), ("input_tokens", "inputTokens"), ("is_a_b", "isAB"), ("", "")],
)
def test_field_names_become_camel_case(name: str, spelled: str) -> None:
    assert camel(name) == spelled


def test_plain_json_of_a_message_part_begins_with_its_type() -> None:
    assert fields_of(ThinkingPart("hm")) == {"type": "thinking", "text": "hm", "isRedacted": False}


def test_data_of_other_programs_keeps_names_and_nulls() -> None:
    part = ToolCallPart("c", "find", {"max_results": None, "deep_er": {"a_b": [1]}})
    assert fields_of(part)["args"] == {"max_results": None, "deep_er": {"a_b": [1]}}


def test_unknown_part_is_unchanged() -> None:
    raw = msgspec.Raw(b'{"type":"hologram","depth_m":2}')
    assert plain(UnknownPart(raw)) == {"type": "hologram", "depth_m": 2}


def test_unset_optional_fields_are_omitted() -> None:
    assert "cost_microcents" not in fields_of(Usage(1))
    assert fields_of(Question("interrupted", "go on?", ("yes",))) == {
        "topic": "interrupted",
        "text": "go on?",
        "choices": ["yes"],
    }


def test_required_field_with_value_none_is_included() -> None:
    assert fields_of(LeafMoved(None)) == {"target": None}


def test_nested_values_become_plain_json() -> None:
    message = assistant("hi", tool_call("c", "x"), usage=Usage(2))
    assert msgspec.json.decode(msgspec.json.encode(plain(message))) == {
        "role": "assistant",
        "parts": [
            {"type": "text", "text": "hi"},
            {"type": "tool_call", "id": "c", "name": "x", "args": {}, "contents": []},
        ],
        "stopReason": "tool_calls",
        "usage": {
            "inputTokens": 2,
            "outputTokens": 0,
            "cacheReadTokens": 0,
            "cacheWriteTokens": 0,
        },
    }
