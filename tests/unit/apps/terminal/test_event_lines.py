"""Events as people see them: nothing twice and nothing missing, in any order."""

from __future__ import annotations

import json

import pytest

from perdure.apps.terminal.event_lines import JsonTeller, QuietTeller, TextTeller
from perdure.apps.terminal.style import Style
from perdure.events.types import AnyEvent, Event, LiveEvent, Snapshot
from perdure.session.ids import StreamId
from perdure.session.messages import assistant

S = StreamId("s")


def token(text: str, n: int = 1) -> LiveEvent:
    return LiveEvent(S, 3, n, "agent:token", 0, text)


def durable(event_type: str, **payload: object) -> Event:
    return Event(S, 4, 0, event_type, 0, payload)


def message(text: str, role: str = "assistant") -> Event:
    return durable("agent:message", role=role, parts=[{"type": "text", "text": text}])


def told(capsys: pytest.CaptureFixture[str], *events: AnyEvent) -> str:
    teller = TextTeller(Style(), 60)
    for event in events:
        teller.tell(event)
    return capsys.readouterr().out


def test_streamed_text_is_not_repeated_by_its_entry(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, token("Hel"), token("lo", 2), message("Hello")) == "Hello\n"


def test_stored_answer_is_printed_if_it_was_not_streamed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert told(capsys, message("Hello"), message("again")) == "Hello\nagain\n"


def test_user_message_is_not_echoed(capsys: pytest.CaptureFixture[str]) -> None:
    assert told(capsys, message("hi", role="user")) == ""


def test_snapshot_prints_only_text_that_was_not_printed_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    snapshot = Snapshot(S, 3, 2, assistant("Hello"), 0)
    assert told(capsys, token("Hel"), snapshot, token(" you", 3)) == "Hello you"


def test_thinking_and_text_are_on_separate_lines(capsys: pytest.CaptureFixture[str]) -> None:
    thought = LiveEvent(S, 3, 1, "agent:reasoning", 0, "hm")
    assert told(capsys, thought, token("Yes"), message("Yes")) == "thinking: hm\nYes\n"


def test_each_tool_call_is_printed_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    call = durable("agent:tool_call", toolId="read_file", toolInput={"path": "a.py"})
    done = durable(
        "agent:tool_result", toolId="read_file", outcome="ok", success=True, durationMs=12
    )
    assert told(capsys, token("Look:"), call, done) == "Look:\n→ read_file a.py ok, 12 ms\n"


def test_line_of_a_failed_tool_contains_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    call = durable("agent:tool_call", toolId="f", toolInput={"a": 1, "b": [2]})
    failed = durable(
        "agent:tool_result", toolId="f", outcome="error", success=False, outputSummary="no\nfile"
    )
    assert told(capsys, call, failed) == '→ f {"a": 1, "b": [2]} error\n  no file\n'


def test_tool_result_without_a_known_call_shows_the_tool_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = durable("agent:tool_result", toolId="f", outcome="unknown", success=False)
    assert told(capsys, lost) == "→ f unknown\n"


def test_compactions_and_dropped_messages_are_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = told(
        capsys,
        durable("session:compacted"),
        durable("session:trimmed", droppedMessageCount=3),
        durable("session:turn_completed", stopReason="length"),
        durable("session:turn_completed", stopReason="stop"),
        durable("log:entry", kind="later"),
    )
    assert shown.splitlines() == [
        "older messages are now sent as a summary; the log keeps them",
        "3 old messages did not fit",
        "(the turn ended: length)",
    ]


def test_streamed_text_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\x1b" not in told(capsys, token("\x1b[2J"), message("\x1b[2J"))


def test_json_output_has_one_wire_event_per_line(capfd: pytest.CaptureFixture[str]) -> None:
    teller = JsonTeller()
    teller.tell(token("é"))
    teller.tell(message("hi"))
    teller.remark("nothing")
    live, entry = map(json.loads, capfd.readouterr().out.splitlines())
    assert (live["type"], live["of"], live["n"], live["text"]) == ("agent:token", 3, 1, "é")
    assert (entry["type"], entry["sequenceNumber"], entry["sessionId"]) == ("agent:message", 4, "s")


def test_quiet_output_prints_only_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    teller = QuietTeller()
    teller.tell(token("x"))
    teller.remark("y")
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "y\n")
