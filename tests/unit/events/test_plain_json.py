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


def test_a_part_begins_with_its_type() -> None:
    assert fields_of(ThinkingPart("hm")) == {"type": "thinking", "text": "hm", "isRedacted": False}


def test_what_came_from_outside_keeps_its_names_and_nulls() -> None:
    part = ToolCallPart("c", "find", {"max_results": None, "deep_er": {"a_b": [1]}})
    assert fields_of(part)["args"] == {"max_results": None, "deep_er": {"a_b": [1]}}


def test_a_part_of_an_unknown_type_is_told_as_it_came() -> None:
    raw = msgspec.Raw(b'{"type":"hologram","depth_m":2}')
    assert plain(UnknownPart(raw)) == {"type": "hologram", "depth_m": 2}


def test_optional_fields_without_a_value_are_left_out() -> None:
    assert "cost_microcents" not in fields_of(Usage(1))
    assert fields_of(Question("interrupted", "go on?", ("yes",))) == {
        "topic": "interrupted",
        "text": "go on?",
        "choices": ["yes"],
    }


def test_a_required_field_is_told_even_when_it_is_none() -> None:
    assert fields_of(LeafMoved(None)) == {"target": None}


def test_values_inside_values_are_told_too() -> None:
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
