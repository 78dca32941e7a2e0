"""What spans say, as values."""

from __future__ import annotations

import msgspec

from perdure.engine.telemetry import names
from perdure.engine.telemetry.describing import (
    MAX_CONTENT,
    of_call,
    of_usage,
    scoped,
    shown_args,
    shown_message,
)
from perdure.engine.turns.state import OpenCall
from perdure.session.messages import Usage, assistant, thinking, tool_call, user

KEY = "sk-ant-" + "a1B2" * 8


def test_a_call_is_named_as_the_conventions_name_its_provider() -> None:
    about = of_call(OpenCall(1, 1, 2, "google:gemini-pro", "answer"), 100)
    assert about[names.PROVIDER] == "gcp.gemini"
    assert about[names.REQUEST_MODEL] == "gemini-pro"
    assert (about[names.ATTEMPT], about[names.REQUEST_MAX_TOKENS]) == (2, 100)


def test_input_tokens_are_all_of_them() -> None:
    about = of_usage(Usage(10, 3, cache_read_tokens=5, cache_write_tokens=2, cost_microcents=9))
    assert about[names.INPUT_TOKENS] == 17
    assert about[names.OUTPUT_TOKENS] == 3
    assert about[names.COST] == 9
    assert of_usage(None) == {}


def test_a_session_is_the_conventions_conversation() -> None:
    assert scoped({"session": "s", "turn": 2}) == {
        "perdure.session": "s",
        "perdure.turn": 2,
        names.CONVERSATION: "s",
    }


def test_messages_are_shown_as_the_conventions_write_them_without_secrets() -> None:
    said = assistant("Done.", thinking("Hm."), tool_call("c", "send", {"token": KEY, "to": "a"}))
    (shown,) = msgspec.json.decode(shown_message(said))
    assert [part["type"] for part in shown["parts"]] == ["text", "reasoning", "tool_call"]
    assert KEY not in str(shown)
    assert shown_args({"api_key": KEY}) == '{"api_key":"[redacted]"}'
    assert len(shown_message(user("x" * 100_000))) == MAX_CONTENT
