"""Chats of Cursor: database rows, one for each message and one for each chat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.interop.bulk import import_files
from perdure.interop.containers import sessions_in
from perdure.interop.formats.databases.cursor import parse
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.reports import ImportReport
from perdure.session.messages import (
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import ImportedRecord, SessionInfoChanged
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.databases import CURSOR, make_database, rows_in
from tests.fakes.sources import FIXTURES, check_items, empty_store, path_of, texts_on

CONTENT = (FIXTURES / "cursor" / "chat.jsonl").read_bytes()
INLINE = (FIXTURES / "cursor" / "inline.jsonl").read_bytes()
ROWS = rows_in(CONTENT)
ID = "724686cd-875e-47da-a90b-dbc3e523efb8"


def chat_with(**changes: object) -> tuple[str, dict[str, object]]:
    table, row = ROWS[-1]
    chat: dict[str, Any] = json.loads(str(row["value"]))
    return table, {**row, "value": json.dumps(chat | changes)}


def lines_of(path: Path) -> list[bytes]:
    with FileContent(path) as content:
        found = [each for each in sessions_in(content) or () if not isinstance(each, Exception)]
        return [each.read(0, each.length) for each in found]


async def reports_of(store: SessionStore, path: Path) -> list[ImportReport]:
    found = import_files(store, [path], clock=ManualClock(), random=SeededRandom(2))
    return [outcome.report async for outcome in found if outcome.report is not None]


def test_every_database_row_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    header = parsed.header
    assert (header.session, header.cwd) == (ID, "/home/ana/orchard")
    assert (header.created_at, header.metadata) == (
        1_777_626_000_000,
        {"unifiedMode": "agent", "_v": 16},
    )
    bodies = [item.body for item in parsed.items]
    assert SessionInfoChanged(title="Apples that keep") in bodies
    assert ImportedRecord("cursor", "bubble") in bodies
    assert b"c2VjcmV0" not in repr(bodies).encode()


def test_messages_have_thoughts_calls_results_and_usage() -> None:
    bodies = [item.body for item in path_of(parse(CONTENT))]
    asked, thought, answer, result, call, cancelled, last = bodies
    assert asked == Message("user", (TextPart("Which apples keep longest?"),))
    assert isinstance(thought, Message)
    assert thought.parts == (ThinkingPart("The list knows."),)
    assert isinstance(answer, Message)
    assert answer.parts == (
        TextPart("I read the list."),
        ToolCallPart("call_1", "read_file_v2", {"targetFile": "apples.txt"}),
    )
    assert (answer.model, answer.usage) == ("cursor:claude-opus-4-7", Usage(10, 5))
    read = ToolResultPart("call_1", '{"contents":"Boskoop"}', name="read_file_v2")
    assert result == Message("tool", (read,))
    assert isinstance(call, Message)
    stopped = ToolResultPart("call_2", "cancelled", is_error=True, name="run_terminal_command_v2")
    assert cancelled == Message("tool", (stopped,))
    assert isinstance(last, Message)
    assert (last.text, last.usage, last.stop_reason) == ("Boskoop.", None, "stop")


def test_chat_stored_in_one_row_is_read() -> None:
    parsed = parse(INLINE)
    check_items(parsed)
    assert texts_on(path_of(parsed)) == ["Which apples?", "Boskoop.", "a", "Done."]
    assert parsed.header.session == "old-1"


def test_lines_that_are_not_rows_are_reported() -> None:
    bad = b'{"program":"cursor","table":"cursorDiskKV","row":{"key":"bubbleId:x","value":"{"}}'
    parsed = parse(b'noise\n{"x":1}\n' + bad + b"\n" + CONTENT)
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [1, 2, 3]
    assert texts_on(path_of(parsed))[-1] == "Boskoop."


def test_rows_of_each_chat_are_read_in_chat_order(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    as_bytes = [(table, {**row, "value": str(row["value"]).encode()}) for table, row in ROWS[:2]]
    other = ("cursorDiskKV", {"key": "composer.content.x", "value": "fn main() {}"})
    make_database(path, CURSOR, [*reversed(ROWS), *as_bytes, other, *rows_in(INLINE)])
    assert lines_of(path) == [CONTENT, INLINE]


def test_encryption_keys_of_the_cursor_service_are_not_imported(tmp_path: Path) -> None:
    path = tmp_path / "state.vscdb"
    keys: dict[str, object] = {"blobEncryptionKey": "hush-1"}
    keys["state"] = [{"speculativeSummarizationEncryptionKey": "hush-2", "turn": 1}]
    make_database(path, CURSOR, [*ROWS[:-1], chat_with(**keys)])
    (lines,) = lines_of(path)
    assert b"hush" not in lines
    assert parse(lines).header == parse(CONTENT).header


async def test_unfinished_answer_is_imported_after_it_ends(tmp_path: Path) -> None:
    path, store = tmp_path / "state.vscdb", empty_store()
    make_database(path, CURSOR, [*ROWS[:-1], chat_with(status="generating")])
    (first,) = await reports_of(store, path)
    make_database(path, CURSOR, [chat_with(name="Pears")])
    (second,) = await reports_of(store, path)
    assert (first.session, first.messages) == (ID, 1)
    assert (second.session, second.messages) == (ID, 6)
    assert [info.title for info in await store.sessions()] == ["Pears"]
