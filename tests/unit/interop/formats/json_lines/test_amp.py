"""Threads of Amp: one JSON document with its messages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.errors import FormatError
from perdure.interop.bulk import import_files
from perdure.interop.formats.json_lines.amp import gather, parse
from perdure.interop.reports import FileOutcome
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.sources import FIXTURES, check_items, empty_store, path_of, texts_on

CONTENT = (FIXTURES / "amp" / "thread.jsonl").read_bytes()
ID = "T-5b7d2c1e-4b1f-4a55-9a39-6f0d2f1c8e77"


def document(**changes: object) -> dict[str, Any]:
    records = [json.loads(line) for line in CONTENT.splitlines()]
    messages = [record["message"] for record in records if "message" in record]
    return {**records[-1]["thread"], "messages": messages, **changes}


async def outcome_of(store: SessionStore, path: Path) -> FileOutcome:
    found = import_files(store, [path], clock=ManualClock(), random=SeededRandom(2))
    (outcome,) = [outcome async for outcome in found]
    return outcome


def test_every_line_of_a_file_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    header = parsed.header
    assert (header.session, header.cwd) == (ID, "/home/ana/my orchard")
    assert header.metadata == {"v": 12, "agentMode": "smart"}
    assert b"c2VjcmV0" not in repr(parsed.items).encode()


def test_messages_have_thoughts_pictures_calls_results_and_usage() -> None:
    bodies = [item.body for item in path_of(parse(CONTENT))]
    asked, answer, result, last = [body for body in bodies if isinstance(body, Message)]
    assert isinstance(asked.parts[1], MediaPart)
    assert answer.parts == (
        ThinkingPart("The list knows."),
        TextPart("I read the list."),
        ToolCallPart("toolu_1", "Read", {"path": "apples.txt"}),
    )
    assert (answer.model, answer.usage) == ("amp:claude-opus-4-7", Usage(10, 5, 3, 2))
    assert result.parts == (ToolResultPart("toolu_1", "Boskoop"),)
    assert (last.text, last.stop_reason) == ("Boskoop.", "stop")


def test_tool_results_of_any_form_are_read() -> None:
    runs: list[object] = [
        {"status": "done", "result": {"content": [{"type": "text", "text": "a"}]}},
        {"status": "done", "result": {"x": 1}},
        {"status": "error", "error": {"message": "no"}},
        {"status": "cancelled"},
        None,
    ]
    content = [{"type": "tool_result", "toolUseID": f"c{n}", "run": r} for n, r in enumerate(runs)]
    line = json.dumps({"program": "amp", "message": {"role": "user", "content": content}})
    (body,) = [item.body for item in parse(line.encode()).items]
    assert isinstance(body, Message)
    results = [part for part in body.parts if isinstance(part, ToolResultPart)]
    assert [(part.text, part.is_error) for part in results] == [
        ("a", False),
        ('{"x":1}', False),
        ('{"message":"no"}', True),
        ("", True),
        ("", False),
    ]


def test_hostile_lines_are_reported() -> None:
    lines = [b"noise", b'{"program":"amp"}', b'{"program":"amp","message":7}']
    uri = b'{"program":"amp","thread":{"env":{"initial":{"trees":[{"uri":"file://[x"},3]}}}}'
    parsed = parse(b"\n".join([*lines, uri, CONTENT]))
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [1, 2, 3]
    assert texts_on(path_of(parsed))[-1] == "Boskoop."


async def test_renamed_and_grown_thread_remains_the_same_session(tmp_path: Path) -> None:
    path, store = tmp_path / f"{ID}.json", empty_store()
    path.write_text(json.dumps(document(), indent=2))
    assert [json.loads(line) for line in gather(path).content.splitlines()] == [
        json.loads(line) for line in CONTENT.splitlines()
    ]
    first = (await outcome_of(store, path)).report
    more = {"role": "user", "messageId": 4, "content": [{"type": "text", "text": "Thanks."}]}
    path.write_text(json.dumps(document(title="Pears", messages=[*document()["messages"], more])))
    second = (await outcome_of(store, path)).report
    assert first is not None
    assert second is not None
    assert (first.session, second.session, second.messages) == (ID, ID, 1)
    assert [info.title for info in await store.sessions()] == ["Pears"]


async def test_file_that_is_not_a_thread_is_rejected(tmp_path: Path) -> None:
    for content in (b"", b"[]", b'{"id":"x"}', b'{"messages":[]}', b"[" * 100_000):
        path = tmp_path / "T-x.json"
        path.write_bytes(content)
        assert isinstance((await outcome_of(empty_store(), path)).error, FormatError)
