"""Sessions of Copilot CLI: messages, tool results, and records outside the conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perdure.interop.formats.json_lines.copilot_cli import parse
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.reader import Bounds
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)
from perdure.session.notes import ImportedRecord
from tests.fakes.sources import FIXTURES, check_items, empty_store, imported, path_of, texts_on

CONTENT = (FIXTURES / "copilot_cli" / "session.jsonl").read_bytes()
ATTACHED = (FIXTURES / "copilot_cli" / "attachments.jsonl").read_bytes()


def messages_of(content: bytes) -> list[Message]:
    return [item.body for item in parse(content).items if isinstance(item.body, Message)]


def test_every_line_of_a_file_is_imported_or_reported() -> None:
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


def test_calls_without_id_are_stored_unchanged() -> None:
    calls: list[object] = [
        {"name": "f", "arguments": {"row": 3}},
        1,
        {"toolCallId": "a", "arguments": {}},
    ]
    data = {"content": "", "toolRequests": calls}
    line: dict[str, object] = {
        "type": "assistant.message",
        "id": "e",
        "parentId": None,
        "data": data,
    }
    (answer,) = messages_of(json.dumps(line).encode())
    kept = [part.raw for part in answer.parts if isinstance(part, UnknownPart)]
    assert [json.loads(bytes(raw)) for raw in kept] == calls


def test_messages_of_subagents_are_outside_of_the_conversation() -> None:
    texts = texts_on(path_of(parse(CONTENT)))
    assert "A subagent speaks." not in texts
    assert texts[-1] == "Boskoop."


def test_lines_that_are_not_events_are_reported() -> None:
    first, rest = CONTENT.split(b"\n", 1)
    parsed = parse(first + b'\nnoise\n[1]\n{"x":1}\n' + rest)
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [2, 3]
    assert ImportedRecord("copilot-cli", "unknown") in [item.body for item in parsed.items]
    assert texts_on(path_of(parsed))[-1] == "Boskoop."


def test_file_without_its_first_event_is_read() -> None:
    parsed = parse(CONTENT.split(b"\n", 1)[1])
    check_items(parsed)
    assert parsed.header.session is None  # only the path of the file names it
    assert texts_on(path_of(parsed))[-1] == "Boskoop."


async def test_second_import_of_a_grown_file_uses_the_same_session() -> None:
    store = empty_store()
    lines = CONTENT.splitlines(keepends=True)
    first = await imported(store, b"".join(lines[:6]))
    second = await imported(store, CONTENT)
    assert (first.format, first.session) == ("copilot-cli", second.session)
    assert (await imported(store, CONTENT)).entries == 0


def test_attachments_become_parts_of_the_message() -> None:
    parsed = parse(ATTACHED)
    check_items(parsed)
    asked, answer = messages_of(ATTACHED)
    text, by_name, inline, folder = asked.parts
    assert text == TextPart("What is this?")
    assert isinstance(by_name, MediaPart)
    assert by_name == inline
    assert isinstance(folder, UnknownPart)
    assert len(parsed.blobs) == 1
    assert answer.parts == (ThinkingPart("A dot, I think."), TextPart("A dot."))


async def test_attached_bytes_are_stored_when_the_file_is_read_in_pieces() -> None:
    store = empty_store()
    report = await imported(store, ATTACHED, bounds=Bounds(whole_bytes=0, piece_bytes=1))
    messages = [entry.message for entry in await store.tree(report.session) if entry.message]
    (medium, _) = [part for part in messages[0].parts if isinstance(part, MediaPart)]
    assert len(await store.blob(medium.handle.removeprefix("media://"))) == medium.byte_length


def test_bytes_of_an_attachment_are_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[int] = []
    read = Held.read

    def counted(content: Held, offset: int, length: int) -> bytes:
        reads.append(offset)
        return read(content, offset, length)

    asked = next(line for line in ATTACHED.splitlines() if b"user.message" in line)
    one = b'{"type":"file","assetId":"sha256:aa"},'
    many = asked.replace(b'"attachments":[', b'"attachments":[' + one * 500)
    monkeypatch.setattr(Held, "read", counted)
    parsed = parse(ATTACHED.replace(asked, many))
    (message, _) = [item.body for item in parsed.items if isinstance(item.body, Message)]
    assert sum(isinstance(part, MediaPart) for part in message.parts) == 502
    assert len(reads) <= 5


def test_lines_with_only_role_and_content_become_messages() -> None:
    start = CONTENT.split(b"\n", 1)[0]
    thin = b'{"role":"user","content":"Hi"}\n{"role":"assistant","content":"Hello"}\n{"role":"x"}\n'
    parsed = parse(start + b"\n" + thin)
    check_items(parsed)
    assert parsed.malformed == ()
    assert texts_on(path_of(parsed)) == ["Hi", "Hello"]


async def test_file_without_first_event_gets_session_id_from_path(tmp_path: Path) -> None:
    rest = CONTENT.split(b"\n", 1)[1]
    id = "5b7d2c1e-4b1f-4a55-9a39-6f0d2f1c8e77"
    found: list[str] = []
    for name, content in (
        (f"{id}/events.jsonl", rest),
        (f"flat/{id.replace('5b', '6b')}.jsonl", rest),
        ("flat/x.jsonl", rest),
        ("flat/whole.jsonl", ATTACHED),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        found.append((await imported(empty_store(), path)).session)
    assert found[:2] == [id, id.replace("5b", "6b")]
    assert found[2].startswith("copilot-cli-")
    assert found[3] == "7b7d2c1e-4b1f-4a55-9a39-6f0d2f1c8e79"
