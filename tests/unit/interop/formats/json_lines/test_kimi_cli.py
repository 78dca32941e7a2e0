"""Sessions of Kimi CLI: one chain of messages; the folder has the id of the session."""

from __future__ import annotations

import json
from pathlib import Path

from perdure.interop.formats.json_lines.kimi_cli import parse
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
)
from perdure.session.notes import ImportedRecord
from tests.fakes.sources import FIXTURES, check_items, empty_store, imported, path_of, texts_on

CONTENT = (FIXTURES / "kimi_cli" / "context.jsonl").read_bytes()

OLD = "5b7d2c1e-4b1f-4a55-9a39-6f0d2f1c8e77.jsonl"


def test_every_line_of_a_file_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    kinds = [item.body.type for item in parsed.items if isinstance(item.body, ImportedRecord)]
    assert sorted(set(kinds)) == ["_checkpoint", "_system_prompt", "_usage"]
    assert b"c2VjcmV0" not in repr(parsed.items).encode()


def test_messages_have_thoughts_pictures_calls_and_results() -> None:
    bodies = [item.body for item in path_of(parse(CONTENT))]
    assert isinstance(bodies[0], CustomMessage)
    asked, answer, result, failed, last = [body for body in bodies if isinstance(body, Message)]
    assert isinstance(asked.parts[1], MediaPart)
    assert answer.parts == (
        ThinkingPart("The list knows."),
        TextPart("I read the list."),
        ToolCallPart("Shell:0", "Shell", {"command": "cat apples.txt"}),
        ToolCallPart("Patch:1", "Patch", {"input": "*** Begin"}),
    )
    text = "<system>Command executed successfully.</system>\nBoskoop"
    assert result.parts == (ToolResultPart("Shell:0", text),)
    error = "<system>ERROR: invalid patch</system>"
    assert failed.parts == (ToolResultPart("Patch:1", error, is_error=True),)
    assert (last.text, last.stop_reason) == ("Boskoop.", "stop")


def test_minimal_and_hostile_lines_are_preserved() -> None:
    lines = [
        b'{"role":"user","content":"hi"}',
        b'{"role":"user","content":7}',
        b'{"role":"tool","content":"x"}',
        b'{"role":"assistant","content":null,"tool_calls":[1,{"id":"a","function":{"name":"f"}}]}',
        b'{"role":"assistant","content":[]}',
        b'{"role":"shaman","content":"x"}',
        b'{"content":"x"}',
    ]
    parsed = parse(b"\n".join(lines))
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [7]
    assert texts_on(path_of(parsed)) == ["hi", ""]


def test_calls_without_id_are_stored_unchanged() -> None:
    calls: list[object] = [
        {"function": {"name": "f", "arguments": "{}"}},
        1,
        {"id": "a", "function": {}},
    ]
    line: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": calls}
    parsed = parse(json.dumps(line).encode())
    check_items(parsed)
    (answer,) = [item.body for item in parsed.items]
    assert isinstance(answer, Message)
    kept = [part.raw for part in answer.parts if isinstance(part, UnknownPart)]
    assert [json.loads(bytes(raw)) for raw in kept] == calls


async def test_session_id_is_read_from_the_name_of_the_folder(tmp_path: Path) -> None:
    store = empty_store()
    found: list[str] = []
    for name in ("one/context.jsonl", "two/context.jsonl", "one/context_1.jsonl", OLD, "x.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(CONTENT)
        found.append((await imported(store, path)).session)
    assert found[:4] == ["one", "two", "one.context_1", OLD.removesuffix(".jsonl")]
    assert found[4].startswith("kimi-cli-")
    path = tmp_path / "one" / "context_sub_1.jsonl"
    path.write_bytes(CONTENT)
    header = (await store.state((await imported(store, path)).session)).header
    assert (header.origin, header.parent) == ("subagent", "one")
    assert (await imported(store, tmp_path / "one" / "context.jsonl")).entries == 0
