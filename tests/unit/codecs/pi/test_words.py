"""The records of pi's files, as all write them."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.codecs.pi import words as pi
from perdure.session.messages import Message, StopReason, Usage, assistant, tool_call


def test_ids_stand_where_pi_puts_them() -> None:
    message = pi.placed({"type": "message", "message": {}}, "b", "a", 0)
    assert list(message) == ["type", "id", "parentId", "timestamp", "message"]
    custom = pi.placed(pi.custom("todo", None), "b", None, 0)
    assert list(custom) == ["type", "customType", "id", "parentId", "timestamp"]


@pytest.mark.parametrize("reason", get_args(StopReason))
def test_a_stop_reason_is_read_as_it_was_written_or_as_an_error(reason: StopReason) -> None:
    written = pi.answer(Message("assistant", (), stop_reason=reason), 0)["stopReason"]
    expected = "error" if reason == "content_filter" else reason
    assert pi.STOP_REASONS[written] == expected


def test_an_answer_without_a_reason_has_the_one_its_parts_tell() -> None:
    assert pi.answer(assistant("yes"), 0)["stopReason"] == "stop"
    assert pi.answer(assistant(tool_call("c", "read", {})), 0)["stopReason"] == "toolUse"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("openai:gpt", ("openai", "gpt", "openai-responses")),
        ("elsewhere:m:1", ("elsewhere", "m:1", "openai-completions")),
        ("gpt", ("unknown", "gpt", "openai-completions")),
        (None, ("unknown", "unknown", "openai-completions")),
    ],
)
def test_a_model_is_named_in_three_words(model: str | None, words: tuple[str, ...]) -> None:
    answer = pi.answer(Message("assistant", (), model=model), 0)
    assert (answer["provider"], answer["model"], answer["api"]) == words


def test_usage_counts_each_class_and_their_sum() -> None:
    assert pi.usage(Usage(1, 2, 3, 4, 150_000_000)) == {
        "input": 1,
        "output": 2,
        "cacheRead": 3,
        "cacheWrite": 4,
        "totalTokens": 10,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 1.5},
    }


def test_what_there_is_none_of_is_left_out() -> None:
    assert "data" not in pi.custom("todo", None)
    assert "details" not in pi.custom_message("todo", [], is_displayed=True)
    assert "parentSession" not in pi.header("s", 0, None, None)
