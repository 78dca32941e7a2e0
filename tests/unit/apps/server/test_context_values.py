"""The JSON form of a context: every list is present, and missing values are null."""

from __future__ import annotations

import msgspec

from perdure.apps.server.context_values import ContextView, SentTool


def test_context_json_has_empty_lists_and_null_for_missing_values() -> None:
    view = ContextView(model=None, thinking_level=None, tokens=0, messages=[], dropped=0, skipped=0)
    shown = msgspec.to_builtins(view)
    assert shown["tools"] == shown["recalled"] == []
    assert shown["options"] is shown["overflow"] is shown["budget"] is None


def test_tool_that_is_not_loaded_has_only_its_name() -> None:
    tool = msgspec.to_builtins(SentTool(name="add", is_loaded=False))
    assert tool == {"name": "add", "isLoaded": False, "description": None, "parameters": None}
