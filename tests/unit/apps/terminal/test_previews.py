"""Every entry has a preview: one line, safe to print, never an exception."""

from __future__ import annotations

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given
from rich.cells import cell_len

from perdure.apps.terminal.previews import call_line, message_line, preview_of, who_of
from perdure.session.codec import BODIES, new_side
from perdure.session.entries import Entry
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.ledger import ModelCalled, ToolFinished, ToolStarted, TurnFinished, TurnStarted
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ToolResultPart,
    UnknownPart,
    assistant,
    thinking,
    tool_call,
    tool_result,
    user,
)
from perdure.session.notes import Answer, Label, SideBody
from tests.fakes.tree_log import TreeLog

WIDTH = 60


def entry_of(body: Message) -> Entry:
    log = TreeLog()
    log.append(body)
    return log.entries[0]


def what(body: Message) -> str:
    return preview_of(entry_of(body), WIDTH).what


def test_preview_of_a_message_shows_the_text() -> None:
    assert what(user("Hello,\n\n  world")) == "Hello, world"
    assert preview_of(entry_of(user("x")), WIDTH).who == "user"


def test_preview_marks_user_commands_that_the_model_does_not_see() -> None:
    def line(details: object, *, in_context: bool) -> str:
        log = TreeLog()
        parts = (TextPart("I ran this command: `ls`"),)
        log.append(CustomMessage("bash_execution", parts, in_context=in_context, details=details))
        return preview_of(log.entries[0], 80).what

    run = {"command": "ls", "output": "a.txt\n"}
    assert line(run, in_context=True) == "! ls → a.txt"
    assert line(run, in_context=False) == "!! ls (the model does not see this) → a.txt"
    assert line({"command": "ls", "output": ""}, in_context=True) == "! ls → (no output)"
    assert line(None, in_context=True) == "bash_execution: I ran this command: `ls`"


def test_preview_of_an_answer_shows_its_text_and_tool_calls() -> None:
    one = tool_call("c", "read_file", {"path": "a.py"})
    two = tool_call("d", "list_directory", {})
    assert what(assistant("Let me see.", one)) == "Let me see. → read_file a.py"
    assert what(assistant(one, two)) == "→ read_file, list_directory"
    assert what(assistant("word " * 40, one)).endswith("… → read_file a.py")


def test_preview_of_an_empty_answer_shows_the_reason() -> None:
    assert what(assistant(thinking("hm"))) == "(thinking: hm)"
    assert what(assistant(stop_reason="aborted")) == "(aborted)"
    failed = Message("assistant", (), stop_reason="error", error="no key")
    assert what(failed) == "(error: no key)"


def test_preview_of_a_tool_result_shows_output_or_failure() -> None:
    assert what(tool_result("c", "three\nlines", name="read")) == "read: three lines"
    assert what(tool_result("c", "oh", is_error=True)) == "failed: oh"
    assert what(tool_result("c", " ")) == "(no output)"


def test_parts_that_are_not_text_are_shown_by_name() -> None:
    media = MediaPart("image/png", "media://sha256-00", 1234)
    unknown = UnknownPart(msgspec.Raw(b'{"type":"hologram"}'))
    shown = what(Message("user", (media, unknown)))
    assert shown == "[image/png, 1,234 bytes] (a part this perdure does not know)"


def test_preview_of_a_call_shows_a_text_argument_or_all_arguments() -> None:
    assert call_line(tool_call("c", "bash", {"n": 1, "command": "ls"})) == "bash ls"
    assert call_line(tool_call("c", "wait", {"seconds": 3})) == 'wait {"seconds": 3}'
    assert call_line(tool_call("c", "now")) == "now"


@pytest.mark.parametrize(
    ("body", "who", "shown"),
    [
        (Compaction("So far", tokens_before=12_000), "compaction", "12,000 tokens → So far"),
        (Compaction("So far"), "compaction", "So far"),
        (BranchSummary("Tried it"), "summary", "Tried it"),
        (ModelChange("openai:x"), "model", "openai:x"),
        (ThinkingChange("high"), "thinking", "high"),
        (Custom("todo", {"a": 1}), "custom", "todo"),
        (CustomMessage("shell", (TextPart("ls"),)), "custom", "shell: ls"),
    ],
)
def test_every_kind_of_tree_entry_has_a_preview(
    body: Compaction | BranchSummary | ModelChange | ThinkingChange | Custom | CustomMessage,
    who: str,
    shown: str,
) -> None:
    log = TreeLog()
    log.append(body)
    preview = preview_of(log.entries[0], WIDTH)
    assert (preview.who, preview.what) == (who, shown)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (TurnStarted(3, "helper"), "turn 3 of helper"),
        (ModelCalled(1, "scripted:echo"), "scripted:echo"),
        (
            ToolStarted("c", "send", {}, 0, "external", "ask", "k"),
            "send (external; if its outcome is lost: ask)",
        ),
        (ToolFinished("c", "send", "unknown", succeeded=False), "send: unknown"),
        (TurnFinished("stop"), "stop"),
        (Label("start"), "start"),
        (Label(), ""),
        (Answer("retry", "me"), "retry"),
    ],
)
def test_entries_about_turns_and_labels_have_readable_previews(body: SideBody, shown: str) -> None:
    new = new_side(body)
    entry = Entry(TreeLog().stream, 0, "side", None, None, 0, new.kind, new.v, new.body)
    assert preview_of(entry, WIDTH).what == shown
    assert who_of(entry)[0] == new.kind


def test_unknown_newer_and_damaged_entries_have_a_preview() -> None:
    log = TreeLog()
    log.append_raw("hologram", b'{"x":1}', v=4)
    log.append_raw("opaque", b"\xff\xfe")
    log.append_raw("message", b'{"role":"user"}', v=99)
    log.append_raw("message", b"not json")
    log.append_raw("message", b"")
    shown = [preview_of(entry, WIDTH).what for entry in log.entries]
    assert shown == [
        "a kind this perdure does not know (version 4)",
        "",
        "unsupported version",
        "corrupt log",
        "(erased)",
    ]


@given(
    kind=st.sampled_from([*BODIES, "message", "opaque", "later"]),
    body=st.binary(max_size=60) | st.just(b"{}"),
    width=st.integers(min_value=1, max_value=80),
)
def test_preview_of_an_entry_with_any_body_is_one_line(kind: str, body: bytes, width: int) -> None:
    log = TreeLog()
    log.append_raw(kind, body)
    preview = preview_of(log.entries[0], width)
    assert cell_len(preview.what) <= width
    assert "\n" not in preview.what


@given(st.text(max_size=80))
def test_tool_result_with_any_text_stays_on_one_line(text: str) -> None:
    message = Message("tool", (ToolResultPart("c", text),))
    assert message_line(message, WIDTH) is not None
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert "\n" not in preview_of(entry_of(message), WIDTH).what
