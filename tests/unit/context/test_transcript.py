from __future__ import annotations

from perdure.context.transcript import transcript
from perdure.session.messages import (
    MediaPart,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)

PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10, "plan.png")


def test_transcript_shows_the_role_of_each_message_and_omits_reasoning() -> None:
    said = [
        user("look", PICTURE),
        assistant(thinking("secret"), "I look", tool_call("1", "read", {"path": "a", "n": 2})),
        tool_result("1", "text of a", name="read"),
        tool_result("2", "no such file", is_error=True),
        user("  "),
    ]
    assert transcript(said) == (
        "[User]: look\n\n"
        "[User]: [attached: plan.png, image/png]\n\n"
        "[Assistant]: I look\n\n"
        '[Assistant calls]: read(path="a", n=2)\n\n'
        "[Tool result of read]: text of a\n\n"
        "[Tool error]: no such file"
    )


def test_only_long_tool_results_are_cut_in_the_transcript() -> None:
    long = "x" * 2_500
    text = transcript([user(long), assistant(long), tool_result("1", long)])
    said, answered, result = text.split("\n\n")
    assert said == f"[User]: {long}"
    assert answered == f"[Assistant]: {long}"
    assert result == f"[Tool result]: {'x' * 2_000}\n[500 more characters were left out]"


def test_tool_result_at_limit_is_not_cut() -> None:
    assert transcript([tool_result("1", "x" * 2_000)]).endswith("x" * 2_000)
