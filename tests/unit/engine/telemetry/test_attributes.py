"""Span attributes, as values."""

from __future__ import annotations

import msgspec

from perdure.engine.telemetry import names
from perdure.engine.telemetry.attributes import (
    MAX_CONTENT,
    of_call,
    of_usage,
    scope_attributes,
    shown_args,
    shown_instructions,
    shown_message,
    shown_messages,
    shown_tools,
)
from perdure.engine.turns.state import OpenCall
from perdure.models.protocol import ToolDeclaration
from perdure.session.messages import StopReason, Usage, assistant, thinking, tool_call, user

KEY = "sk-ant-" + "a1B2" * 8


def test_provider_name_follows_opentelemetry_conventions() -> None:
    about = of_call(OpenCall(1, 1, 2, "google:gemini-pro", "answer"), 100)
    assert about[names.PROVIDER] == "gcp.gemini"
    assert about[names.REQUEST_MODEL] == "gemini-pro"
    assert (about[names.ATTEMPT], about[names.REQUEST_MAX_TOKENS]) == (2, 100)


def test_input_tokens_include_cached_tokens() -> None:
    about = of_usage(Usage(10, 3, cache_read_tokens=5, cache_write_tokens=2, cost_microcents=9))
    assert about[names.INPUT_TOKENS] == 17
    assert about[names.OUTPUT_TOKENS] == 3
    assert about[names.COST] == 9
    assert of_usage(None) == {}


def test_session_id_is_the_conversation_id_of_opentelemetry_conventions() -> None:
    assert scope_attributes({"session": "s", "turn": 2}) == {
        "perdure.session": "s",
        "perdure.turn": 2,
        names.CONVERSATION: "s",
    }


def test_telemetry_messages_follow_conventions_and_mask_secrets() -> None:
    said = assistant("Done.", thinking("Hm."), tool_call("c", "send", {"token": KEY, "to": "a"}))
    (shown,) = msgspec.json.decode(shown_message(said))
    assert [part["type"] for part in shown["parts"]] == ["text", "reasoning", "tool_call"]
    assert KEY not in str(shown)
    assert shown_args({"api_key": KEY}) == '{"api_key":"[redacted]"}'
    reasons: dict[StopReason, str] = {"stop": "stop", "tool_calls": "tool_call", "aborted": "error"}
    for reason, shown_as in reasons.items():
        (shown,) = msgspec.json.decode(shown_message(assistant("a", stop_reason=reason)))
        assert shown["finish_reason"] == shown_as


def test_long_content_is_truncated_to_valid_json() -> None:
    for content in ("x" * 100_000, '"' * 100_000, "ä\n" * 50_000):
        text = shown_message(user(content))
        assert MAX_CONTENT * 0.4 < len(text) <= MAX_CONTENT
        (shown,) = msgspec.json.decode(text)
        assert shown["parts"][0]["content"].endswith("[cut]")
        args = shown_args({"a": content, "b": [content]})
        assert len(args) <= MAX_CONTENT
        assert msgspec.json.decode(args).keys() == {"a", "b"}
        (told,) = msgspec.json.decode(shown_instructions(content))
        assert content.startswith(told["content"])


def test_telemetry_contains_newest_messages_and_counts_omitted_messages() -> None:
    said = [user(f"{n} " * 500) for n in range(100)]
    text = shown_messages(said)
    assert len(text) <= MAX_CONTENT
    note, *shown = msgspec.json.decode(text)
    assert note["role"] == "system"
    assert note["parts"][0]["content"] == f"[{100 - len(shown)} earlier messages are left out]"
    assert shown[-1]["parts"][0]["content"] == said[-1].text
    assert shown_messages(()) == "[]"


def test_telemetry_contains_the_tools_that_fit() -> None:
    tools = [ToolDeclaration(f"t{n}", "x" * 8_000, {"type": "object"}) for n in range(9)]
    text = shown_tools(tools)
    assert len(text) <= MAX_CONTENT
    assert [each["name"] for each in msgspec.json.decode(text)] == ["t0", "t1", "t2", "t3"]


def test_end_of_cut_system_prompt_contains_no_part_of_a_secret() -> None:
    (whole,) = msgspec.json.decode(shown_instructions("x" * MAX_CONTENT))
    text = "x" * (len(whole["content"]) - 11) + " " + KEY
    (told,) = msgspec.json.decode(shown_instructions(text))
    assert told["content"].startswith("xxx")
    assert "sk-ant" not in told["content"]
