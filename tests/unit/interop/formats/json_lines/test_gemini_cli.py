"""Sessions of Gemini CLI: messages, repeated messages and rewinds."""

from __future__ import annotations

from typing import TypeVar

import msgspec
import pytest

from perdure.interop.formats.items import ParsedSource
from perdure.interop.formats.json_lines.gemini_cli import parse
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)
from perdure.session.notes import ImportedRecord, LeafMoved, SessionInfoChanged
from tests.fakes.sources import FIXTURES, check_items, empty_store, imported, path_of, texts_on

_T = TypeVar("_T")

CONTENT = (FIXTURES / "gemini_cli" / "session.jsonl").read_bytes()
HEADER = b'{"sessionId":"s","projectHash":"p","startTime":"2026-04-01T10:00:00.000Z"}\n'


def message(id: str, kind: str, content: object, **more: object) -> bytes:
    return msgspec.json.encode({"id": id, "type": kind, "content": content, **more}) + b"\n"


def said(parsed: ParsedSource) -> list[str]:
    """Return the texts of the messages of the current branch."""
    return texts_on(path_of(parsed))


def bodies_of(parsed: ParsedSource, kind: type[_T]) -> list[_T]:
    return [item.body for item in parsed.items if isinstance(item.body, kind)]


def test_every_line_of_a_file_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    assert parsed.header.session == "5b6f0c1e-6d6a-4c0a-9d3e-7f1a2b3c4d5e"
    assert (parsed.header.cwd, parsed.header.is_subagent) == ("/home/ana/orchard", False)
    assert parsed.header.created_at == 1_775_037_600_500


def test_thoughts_usage_and_calls_of_an_answer_are_stored_once() -> None:
    parsed = parse(CONTENT)
    answers = bodies_of(parsed, Message)
    first, calls, results, second = [body for body in answers if body.role != "user"][:4]
    assert first.parts[0] == ThinkingPart("Apples: The list knows.\n")
    assert first.usage == Usage(100, 20, cache_read_tokens=30)
    assert first.model == "google:gemini-2.5-flash"
    assert [call.args for call in calls.tool_calls] == [
        {"file_path": "apples.txt"},
        {"file_path": "pears.txt"},
    ]
    assert calls.usage is None
    assert [part.is_error for part in results.parts if isinstance(part, ToolResultPart)] == [
        False,
        True,
    ]
    assert second.text == "Boskoop."
    assert len([body for body in answers if body.role == "tool"]) == 1


def test_program_messages_are_not_read_as_user_messages() -> None:
    parsed = parse(CONTENT)
    assert len(bodies_of(parsed, CustomMessage)) == 1
    asked = next(body for body in bodies_of(parsed, Message) if body.role == "user")
    assert any(isinstance(part, MediaPart) for part in asked.parts)
    assert [body.title for body in bodies_of(parsed, SessionInfoChanged)] == ["Apples that keep"]


def test_rewound_messages_remain_on_a_branch() -> None:
    parsed = parse(CONTENT)
    assert said(parsed)[-2:] == ["Where to keep them?", "In the cellar."]
    assert "I do not know." not in said(parsed)
    assert len(bodies_of(parsed, LeafMoved)) == 1
    assert "I do not know." in [body.text for body in bodies_of(parsed, Message)]


def test_message_with_changed_text_begins_a_branch() -> None:
    parsed = parse(
        HEADER
        + message("u", "user", "Which?")
        + message("g", "gemini", "Bosk")
        + message("g", "gemini", "Boskoop.")
    )
    assert said(parsed) == ["Which?", "Boskoop."]
    assert len(bodies_of(parsed, Message)) == 3


def test_repeated_message_without_changes_becomes_a_note() -> None:
    parsed = parse(HEADER + message("u", "user", "Which?") * 2)
    assert said(parsed) == ["Which?"]
    assert bodies_of(parsed, ImportedRecord) == [ImportedRecord("gemini-cli", "message:user")]


def test_replaced_message_list_starts_a_branch_at_its_first_difference() -> None:
    messages = [
        {"id": "u", "type": "user", "content": "Which?"},
        {"id": "x", "type": "gemini", "content": "A summary."},
    ]
    line = msgspec.json.encode({"$set": {"messages": messages}}) + b"\n"
    begin = HEADER + message("u", "user", "Which?") + message("g", "gemini", "Boskoop.")
    parsed = parse(begin + line + message("v", "user", "Why?"))
    assert said(parsed) == ["Which?", "A summary.", "Why?"]


def test_lines_that_are_not_records_are_reported() -> None:
    parsed = parse(HEADER + b'[1]\n{"x":1}\nnoise\n' + message("u", "user", "Go on"))
    assert [line.number for line in parsed.malformed] == [2, 3, 4]
    assert said(parsed) == ["Go on"]


async def test_second_import_of_a_grown_file_uses_the_same_session() -> None:
    store = empty_store()
    lines = CONTENT.splitlines(keepends=True)
    first = await imported(store, b"".join(lines[:5]))
    second = await imported(store, CONTENT)
    assert (first.session, first.is_new) == (second.session, True)
    assert not second.is_new
    assert (await imported(store, CONTENT)).entries == 0
    assert path_of(parse(CONTENT))


def test_message_repeated_in_a_list_is_stored_each_time() -> None:
    again = [
        {"id": "u", "type": "user", "content": "Which?"},
        {"id": "u", "type": "info", "content": "Cancelled."},
        {"id": "u", "type": "user", "content": "Which?"},
    ]
    line = msgspec.json.encode({"$set": {"messages": again}}) + b"\n"
    parsed = parse(HEADER + message("u", "user", "Which?") + line + b'{"$rewindTo":"u"}\n')
    check_items(parsed)
    assert said(parsed) == ["Which?"]


def test_calls_without_id_are_stored_with_their_results() -> None:
    call = {"name": "read", "args": {"row": 3}, "status": "executing"}
    response = {"functionResponse": {"name": "read", "response": {"output": "Boskoop"}}}
    ended = {**call, "status": "success", "result": [response]}
    nameless = {"args": {"row": 4}}
    told = [[call, nameless], [ended, nameless], [ended, nameless, {**ended, "id": "own"}]]
    lines = [message("m", "gemini", "I look.", toolCalls=calls) for calls in told]
    parsed = parse(HEADER + b"".join(lines))
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    parts = [part for body in bodies_of(parsed, Message) for part in body.parts]
    assert [part for part in parts if isinstance(part, ToolCallPart)] == [
        ToolCallPart("m:0", "read", {"row": 3}),
        ToolCallPart("own", "read", {"row": 3}),
    ]
    assert [part for part in parts if isinstance(part, ToolResultPart)] == [
        ToolResultPart(id, "Boskoop", name="read") for id in ("m:0", "own")
    ]
    kept = [part.raw for part in parts if isinstance(part, UnknownPart)]
    assert [msgspec.json.decode(raw) for raw in kept] == [nameless]


@pytest.mark.parametrize("ids", [{}, {"id": None}, {"id": ""}, {"id": "own"}])
@pytest.mark.parametrize("call_id", [None, "c"])
def test_result_has_the_id_of_its_call(ids: dict[str, object], call_id: str | None) -> None:
    answered = {"functionResponse": {"name": "read", "response": {"output": "Boskoop"}, **ids}}
    call = {"id": call_id, "name": "read", "status": "success", "result": [answered]}
    again = message("u", "user", [answered])
    parsed = parse(HEADER + message("m", "gemini", "I look.", toolCalls=[call]) + again)
    check_items(parsed)
    expected = call_id or "m:0"
    parts = [part for body in bodies_of(parsed, Message) for part in body.parts]
    assert [part.id for part in parts if isinstance(part, ToolCallPart)] == [expected]
    assert [part for part in parts if isinstance(part, ToolResultPart)] == [
        ToolResultPart(expected, "Boskoop", name="read")
    ]


def test_call_without_a_name_is_stored_with_its_result() -> None:
    answered = {"functionResponse": {"id": "r", "name": "read", "response": {"output": "Boskoop"}}}
    call = {"id": "c", "status": "success", "result": [answered]}
    again = message("u", "user", [answered])
    parsed = parse(HEADER + message("m", "gemini", "I look.", toolCalls=[call]) + again)
    [answer] = bodies_of(parsed, Message)
    [kept] = [part.raw for part in answer.parts if isinstance(part, UnknownPart)]
    assert msgspec.json.decode(kept) == call
