"""The offline model calls the requested tools and writes usable summaries."""

from __future__ import annotations

import pytest

from perdure.models.echo import echo, summary_of
from perdure.models.protocol import ModelRequest, ToolDeclaration
from perdure.models.scenario import CallTools, Say, ScriptedCall, Think
from perdure.session.messages import assistant, tool_call, tool_result, user

SECTIONS = (
    *("## Goal", "## Constraints & Preferences", "## Progress"),
    *("## Key Decisions", "## Next Steps", "## Critical Context"),
)


def text_of(request: ModelRequest) -> str:
    return "".join(step.text for step in echo(request).steps if isinstance(step, Say))


def calls_for(text: str) -> tuple[ScriptedCall, ...]:
    steps = echo(ModelRequest("scripted:echo", (user(text),))).steps
    return next((step.calls for step in steps if isinstance(step, CallTools)), ())


def test_echo_introduces_itself_with_help() -> None:
    text = text_of(ModelRequest("scripted:echo", (user("What is 6 x 7?"),)))
    assert text.startswith("offline scripted model: you wrote “What is 6 x 7?”.")
    assert "/tool" in text
    assert "-m openai:" in text


def test_echo_explains_itself_only_once_per_conversation() -> None:
    text = text_of(ModelRequest("m", (user("a"), assistant("b"), user("again"))))
    assert text == "offline scripted model: you wrote “again”."


def test_long_message_is_repeated_only_in_part() -> None:
    assert len(text_of(ModelRequest("m", (user("x" * 100_000),)))) < 1_000


def test_echo_calls_tools_that_the_message_requests() -> None:
    text = 'Please:\n/tool read_file {"path": "a"}\n/tool list\n/tool write {\n  "n": 1\n}'
    assert calls_for(text) == (
        ScriptedCall("read_file", '{"path": "a"}'),
        ScriptedCall("list", "{}"),
        ScriptedCall("write", '{\n  "n": 1\n}'),
    )


def test_arguments_that_are_not_json_are_sent_unchanged() -> None:
    assert calls_for("/tool read_file {path: a}") == (ScriptedCall("read_file", "{path: a}"),)


@pytest.mark.parametrize("text", ["say /tool x", "/tools", "/tool", "/toolx {}"])
def test_echo_calls_no_tool_for_text_without_a_request(text: str) -> None:
    assert calls_for(text) == ()


def test_echo_reports_tool_results() -> None:
    request = ModelRequest(
        "m",
        (
            user('/tool read_file {"path": "a"}'),
            assistant(tool_call("1", "read_file", {}), tool_call("2", "list", {})),
            tool_result("1", "content of a"),
            tool_result("2", "gone", is_error=True),
        ),
    )
    assert text_of(request) == (
        "offline scripted model: read_file answered:\ncontent of a\n\n"
        "offline scripted model: list failed:\ngone"
    )


def test_echo_model_streams_thinking_on_request() -> None:
    tool = ToolDeclaration("t", "", {"type": "object"})
    request = ModelRequest("m", (user("a"),), tools=(tool,), thinking_level="high")
    steps = echo(request).steps
    assert steps[0] == Think(
        "offline scripted model: thinking level high; I see 1 messages and 1 tools."
    )
    assert not any(isinstance(s, Think) for s in echo(ModelRequest("m", (user("a"),))).steps)


def transcript(lines: int) -> str:
    said = "\n".join(f"[User]: line {number} of the talk" for number in range(lines))
    return f"<conversation>\n{said}\n</conversation>\n\nSummarise.\n## Goal"


def test_summary_has_every_section_and_conversation_text() -> None:
    text = text_of(ModelRequest("m", (user(transcript(100)),)))
    assert [section for section in SECTIONS if section in text] == list(SECTIONS)
    assert "line 0 of the talk" in text
    assert "Go on from: [User]: line 99 of the talk" in text
    assert "100 lines" in text
    assert 300 < len(text) < 4_000


def test_summary_contains_previous_summary() -> None:
    text = transcript(2) + "<previous-summary>\nThey chose Rome.\n</previous-summary>"
    assert "They chose Rome." in summary_of(text)


def test_same_conversation_gives_the_same_summary() -> None:
    assert summary_of(transcript(50)) == summary_of(transcript(50))
    assert summary_of(transcript(50)) != summary_of(transcript(51))


def test_empty_conversation_has_summary() -> None:
    assert "(nothing was said)" in summary_of("<conversation>\n</conversation>")
