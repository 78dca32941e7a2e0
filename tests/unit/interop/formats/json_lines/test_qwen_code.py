"""Sessions of Qwen Code: messages, branches, and records outside the conversation."""

from __future__ import annotations

from typing import TypeVar

from perdure.interop.formats.items import ParsedSource
from perdure.interop.formats.json_lines.qwen_code import parse
from perdure.session.messages import MediaPart, Message, ThinkingPart, ToolResultPart, Usage
from perdure.session.notes import ImportedRecord
from tests.fakes.sources import FIXTURES, check_items, empty_store, imported, path_of, texts_on

_T = TypeVar("_T")

CONTENT = (FIXTURES / "qwen_code" / "session.jsonl").read_bytes()


def bodies_of(parsed: ParsedSource, kind: type[_T]) -> list[_T]:
    return [item.body for item in parsed.items if isinstance(item.body, kind)]


def test_every_line_of_a_file_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    assert parsed.header.session == "7c2f1f4e-95d0-4b7e-8a52-1b0f3a6c9d10"
    assert (parsed.header.cwd, parsed.header.created_at) == ("/home/ana/orchard", 1_775_037_601_250)
    assert bodies_of(parsed, ImportedRecord) == [ImportedRecord("qwen-code", "ui_telemetry")]


def test_messages_have_thoughts_calls_results_and_usage() -> None:
    asked, answer, result = bodies_of(parse(CONTENT), Message)[:3]
    assert any(isinstance(part, MediaPart) for part in asked.parts)
    assert answer.parts[0] == ThinkingPart("The list knows.")
    assert (answer.text, answer.stop_reason) == ("I read the list.", "tool_calls")
    assert answer.usage == Usage(100, 17, cache_read_tokens=30)
    assert [call.args for call in answer.tool_calls] == [{"path": "apples.txt"}]
    assert result.role == "tool"
    assert result.parts == (ToolResultPart("call_1", "Boskoop\nGravensteiner", name="read_file"),)


def test_branch_of_the_last_line_is_the_current_branch() -> None:
    parsed = parse(CONTENT)
    path = path_of(parsed)
    assert "And pears?" not in texts_on(path)
    assert texts_on(path)[-1] == "In the cellar."
    failed = [
        part
        for body in bodies_of(parsed, Message)
        for part in body.parts
        if isinstance(part, ToolResultPart) and part.is_error
    ]
    assert [part.text for part in failed] == ["File not found."]


def test_lines_that_are_not_records_are_reported() -> None:
    first, rest = CONTENT.split(b"\n", 1)
    parsed = parse(first + b'\nnoise\n[1]\n{"x":1}\n' + rest)
    assert [line.number for line in parsed.malformed] == [2, 3, 4]
    assert texts_on(path_of(parsed))[-1] == "In the cellar."


async def test_second_import_of_a_grown_file_uses_the_same_session() -> None:
    store = empty_store()
    lines = CONTENT.splitlines(keepends=True)
    first = await imported(store, b"".join(lines[:5]))
    second = await imported(store, CONTENT)
    assert (first.format, first.session) == ("qwen-code", second.session)
    assert (await imported(store, CONTENT)).entries == 0
