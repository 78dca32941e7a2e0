"""The validators in tests/fakes: each detects that its rule is violated."""

from __future__ import annotations

import pytest

from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolResultPart,
    assistant,
    system,
    thinking,
    tool_call,
    tool_result,
    user,
)
from tests.fakes.provider_rules import (
    anthropic_problems,
    google_problems,
    openai_problems,
    sending_problems,
)
from tests.fakes.samples import case

ASK = assistant("let me see", tool_call("1", "read"))
RESULT = tool_result("1", "text", name="read")
PICTURE = MediaPart("image/png", "media://sha256-" + "0" * 64, 10)
GOOD = [user("hi", PICTURE), ASK, RESULT, user("and?"), assistant("done"), user("thanks")]
TWO = assistant(tool_call("1", "read"), tool_call("2", "write"))


def test_valid_history_has_no_problems() -> None:
    assert sending_problems(GOOD) == []
    assert sending_problems([user("hi"), ASK, RESULT]) == []


@pytest.mark.parametrize("said", [[], [user("hi"), assistant("yes")]])
def test_history_without_a_message_to_answer_is_a_problem(said: list[Message]) -> None:
    assert sending_problems(said)


@pytest.mark.parametrize(
    "said",
    [
        [user("hi"), ASK],
        [user("hi"), ASK, user("and?"), RESULT],
        [user("hi"), RESULT],
        [user("hi"), ASK, RESULT, RESULT],
        [user("hi"), TWO, RESULT, user("x")],
        [user("hi"), assistant(tool_call("x" * 41, "read")), tool_result("x" * 41, "r")],
        [user("hi"), assistant(tool_call("", "read")), tool_result("", "r")],
        [user("hi"), assistant(tool_call("1", "re.ad")), RESULT],
        [user("hi"), assistant(tool_call("1", "a"), tool_call("1", "b")), RESULT, RESULT],
        [user("hi"), system("be brief")],
        [user("")],
        [user("hi"), Message("assistant", ())],
        [user("hi"), assistant(thinking("hm"), "yes")],
        [user("hi"), Message("assistant", (PICTURE,))],
    ],
)
def test_history_that_openai_refuses_has_problems(said: list[Message]) -> None:
    assert openai_problems(said)


def test_history_that_anthropic_refuses_has_problems() -> None:
    for said in [
        [assistant("hello")],
        [user("a"), user("b")],
        [user("a"), assistant("b"), assistant("c")],
        [user(" \n")],
        [Message("user", ())],
        [user("hi"), ASK],
        [user("hi"), ASK, user("and?")],
        [user("hi"), ASK, tool_result("2", "r")],
        [user("hi"), ASK, Message("tool", (*RESULT.parts, *RESULT.parts))],
        [user("hi"), ASK, Message("tool", (ToolResultPart("1", " "),))],
        [user("hi"), ASK, Message("tool", (TextPart("so:"), *RESULT.parts))],
        [user("hi"), assistant(tool_call("1", "read"), "behind"), RESULT],
        [user("hi"), ASK, RESULT, ASK, RESULT],
        [user("hi"), assistant(tool_call("a.b", "read")), tool_result("a.b", "r")],
        [user("hi"), assistant(tool_call("1", "re ad")), RESULT],
        [user("hi"), assistant(thinking("hm"), "yes")],
        [user("hi"), assistant("yes ")],
    ]:
        with case(said):
            assert anthropic_problems(said)


@pytest.mark.parametrize(
    "said",
    [
        [ASK, RESULT],
        [RESULT],
        [user("a"), user("b")],
        [Message("user", ())],
        [user("")],
        [user("hi"), ASK],
        [user("hi"), ASK, user("and?"), RESULT],
        [user("hi"), TWO, RESULT],
        [user("hi"), TWO, Message("tool", (ToolResultPart("2", "r", name="write"), *RESULT.parts))],
        [user("hi"), assistant("no call"), RESULT],
        [user("hi"), assistant(tool_call("1", "9read")), tool_result("1", "r", name="9read")],
        [user("hi"), assistant(thinking("hm"), "yes")],
    ],
)
def test_history_that_google_refuses_has_problems(said: list[Message]) -> None:
    assert google_problems(said)
