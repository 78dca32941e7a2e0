from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.context.tokens import (
    MEDIA_TOKENS,
    SCALE_MAX,
    SCALE_MIN,
    context_tokens,
    corrected_scale,
    estimate_tokens,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    ToolResultPart,
    Usage,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)

PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10)


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        (user(""), 0),
        (user("1234"), 1),
        (user("12345"), 2),
        (user("ééé"), 2),  # six bytes of UTF-8
        (user("lone \ud800"), 2),
        (assistant(thinking("12345678")), 2),
        (assistant(tool_call("id", "read", {"path": "a"})), 4),  # read{"path":"a"}: 16 bytes
        (tool_result("id", "12345678"), 2),
        (user(PICTURE), MEDIA_TOKENS),
        (user("1234", PICTURE), MEDIA_TOKENS + 1),
        (Message("tool", (ToolResultPart("id", "1234", media=(PICTURE, PICTURE)),)), 2_401),
    ],
)
def test_token_estimate_is_a_quarter_of_the_bytes_rounded_up(message: Message, tokens: int) -> None:
    assert estimate_tokens(message) == tokens


def test_token_estimate_is_scaled_before_rounding() -> None:
    assert estimate_tokens(user("1234567890"), 1.5) == 4


def test_later_messages_are_estimated_after_reported_usage() -> None:
    said = [
        user("x" * 400),
        assistant("old", usage=Usage(1, 1)),
        assistant("new", usage=Usage(900, 100)),
        user("1234"),
        tool_result("id", "1234"),
    ]
    assert context_tokens(said) == 1_002
    assert context_tokens(said, 2.0) == 1_004


def test_cached_tokens_count_as_used_context() -> None:
    """Operator does not count cached tokens, so it compacts far too late."""
    usage = Usage(
        input_tokens=10, output_tokens=20, cache_read_tokens=50_000, cache_write_tokens=700
    )
    assert context_tokens([user("hi"), assistant("yes", usage=usage)]) == 50_730


@pytest.mark.parametrize("reason", ["aborted", "error"])
def test_token_usage_of_an_interrupted_answer_does_not_count(reason: str) -> None:
    cut_short = Message("assistant", (), usage=Usage(7), stop_reason=reason)  # pyright: ignore[reportArgumentType]  a parameter of pytest is a plain str
    said = [assistant("ok", usage=Usage(500)), user("1234"), cut_short]
    assert context_tokens(said) == 501


def test_usage_of_all_zeros_is_ignored() -> None:
    """Issue 5526 of pi: providers that report zeros prevented every compaction."""
    said = [user("x" * 4_000), assistant("y" * 400, usage=Usage()), assistant("z" * 40)]
    assert context_tokens(said) == 1_110


def test_context_without_reported_usage_is_estimated_completely() -> None:
    error = Message("assistant", (), stop_reason="error", error="overloaded", usage=Usage(99_999))
    assert context_tokens([user("12345678"), error]) == 2


def test_empty_context_takes_no_tokens() -> None:
    assert context_tokens([]) == 0


def test_token_scale_moves_towards_reported_usage() -> None:
    scale = 1.0
    for _ in range(40):
        scale = corrected_scale(scale, estimated=round(1_000 * scale), reported=1_500)
    assert scale == pytest.approx(1.5, rel=0.01)


@pytest.mark.parametrize(("estimated", "reported"), [(0, 10), (10, 0), (-1, 5), (5, -1)])
def test_unusable_token_counts_do_not_change_the_scale(estimated: int, reported: int) -> None:
    assert corrected_scale(1.3, estimated, reported) == 1.3


@given(
    st.floats(SCALE_MIN, SCALE_MAX),
    st.integers(min_value=-10, max_value=10**9),
    st.integers(min_value=-10, max_value=10**9),
)
def test_token_scale_stays_in_bounds(scale: float, estimated: int, reported: int) -> None:
    assert SCALE_MIN <= corrected_scale(scale, estimated, reported) <= SCALE_MAX
