"""Sessions of Copilot CLI: messages, results of tools, and what is outside of the conversation."""

from __future__ import annotations

from perdure.interop.formats.json_lines.copilot_cli import parse
from perdure.session.messages import Message, ThinkingPart, ToolResultPart, Usage
from perdure.session.notes import ImportedRecord
from tests.fakes.sources import FIXTURES, check_items, empty_store, imported, path_of, texts_on

CONTENT = (FIXTURES / "copilot_cli" / "session.jsonl").read_bytes()


def messages_of(content: bytes) -> list[Message]:
    return [item.body for item in parse(content).items if isinstance(item.body, Message)]


def test_every_line_is_accounted_for() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    header = parsed.header
    assert header.session == "5b7d2c1e-4b1f-4a55-9a39-6f0d2f1c8e77"
    assert (header.cwd, header.metadata) == ("/home/ana/orchard", {"version": "1.0.30"})
    assert header.created_at == 1_777_626_000_500
    records = [item.body for item in parsed.items if isinstance(item.body, ImportedRecord)]
    assert len(records) == 7
    assert ImportedRecord("copilot-cli", "subagent.started") in records


def test_messages_have_thoughts_calls_results_and_usage() -> None:
    asked, answer, result, failed, last = messages_of(CONTENT)
    assert (asked.role, asked.text) == ("user", "Which apples keep longest?")
    assert answer.parts[0] == ThinkingPart("The list knows.")
    assert (answer.text, answer.stop_reason) == ("I read the list.", "tool_calls")
    assert (answer.model, answer.usage) == ("github:gpt-5", Usage(output_tokens=17))
    assert [call.args for call in answer.tool_calls] == [
        {"path": "apples.txt"},
        {"input": "*** Begin Patch"},
    ]
    assert result.parts == (ToolResultPart("call_1", "Boskoop\nGravensteiner"),)
    assert failed.parts == (ToolResultPart("call_2", "The patch is not valid.", is_error=True),)
    assert (last.text, last.stop_reason) == ("Boskoop.", "stop")


def test_messages_of_subagents_are_outside_of_the_conversation() -> None:
    texts = texts_on(path_of(parse(CONTENT)))
    assert "A subagent speaks." not in texts
    assert texts[-1] == "Boskoop."


def test_lines_that_are_no_events_are_reported() -> None:
    first, rest = CONTENT.split(b"\n", 1)
    parsed = parse(first + b'\nnoise\n[1]\n{"x":1}\n' + rest)
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [2, 3, 4]
    assert texts_on(path_of(parsed))[-1] == "Boskoop."


def test_file_without_its_first_event_is_read() -> None:
    parsed = parse(CONTENT.split(b"\n", 1)[1])
    check_items(parsed)
    assert parsed.header.session is None
    assert texts_on(path_of(parsed))[-1] == "Boskoop."


async def test_file_that_grew_adds_its_new_lines() -> None:
    store = empty_store()
    lines = CONTENT.splitlines(keepends=True)
    first = await imported(store, b"".join(lines[:6]))
    second = await imported(store, CONTENT)
    assert (first.format, first.session) == ("copilot-cli", second.session)
    assert (await imported(store, CONTENT)).entries == 0
