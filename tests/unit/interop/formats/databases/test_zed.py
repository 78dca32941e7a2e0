"""Threads of Zed: rows of its database, each with a compressed document."""

from __future__ import annotations

import importlib
import json
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.errors import FormatError, LimitExceeded, PerdureError
from perdure.interop.bulk import import_files
from perdure.interop.containers import sessions_in
from perdure.interop.formats.databases.zed import parse
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.reports import FileOutcome
from perdure.session.kinds import Compaction, CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from perdure.session.notes import ImportedRecord, SessionInfoChanged
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.databases import ZED, make_database
from tests.fakes.sources import FIXTURES, check_items, empty_store, path_of, texts_on

CONTENT = (FIXTURES / "zed" / "thread.jsonl").read_bytes()
EARLY = (FIXTURES / "zed" / "early.jsonl").read_bytes()
ID = "6d0c41be-9a36-4bb4-8cf6-8d3d6b2c1f57"
zstd: Any = importlib.import_module(
    "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
)


def row_of(content: bytes, messages: int | None = None, **changes: object) -> dict[str, object]:
    """Return the row of a thread with its first `messages` messages, as Zed writes it."""
    records = [json.loads(line) for line in content.splitlines()]
    said = [record["message"] for record in records if "message" in record]
    document = json.dumps({**records[-1]["thread"], "messages": said[:messages]}).encode()
    row = records[-1]["row"]
    data = zstd.compress(document, 3) if row["data_type"] == "zstd" else document
    return {**row, "data": data, **changes}


def stored(path: Path, *rows: dict[str, object]) -> Path:
    make_database(path, ZED, [("threads", row) for row in rows])
    return path


async def outcomes(store: SessionStore, path: Path) -> list[FileOutcome]:
    found = import_files(store, [path], clock=ManualClock(), random=SeededRandom(2))
    return [outcome async for outcome in found]


def lines_of(path: Path) -> list[bytes | PerdureError]:
    with FileContent(path) as content:
        return [
            each if isinstance(each, PerdureError) else each.read(0, each.length)
            for each in sessions_in(content) or ()
        ]


def as_records(lines: bytes | PerdureError) -> list[object]:
    assert isinstance(lines, bytes)
    return [json.loads(line) for line in lines.splitlines()]


def test_every_line_of_a_file_is_imported_or_reported() -> None:
    parsed = parse(CONTENT)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    header = parsed.header
    assert (header.session, header.cwd) == (ID, "/home/ana/orchard")
    assert header.created_at == 1_777_626_000_000
    assert header.metadata == {
        "version": "0.3.0",
        "model": {"provider": "anthropic", "model": "claude-sonnet-4-5"},
        "profile": "write",
    }
    bodies = [item.body for item in parsed.items]
    assert SessionInfoChanged(title="Apples that keep") in bodies
    assert ImportedRecord("zed", "message") in bodies
    assert b"c2VjcmV0" not in repr(bodies).encode()


def test_messages_have_mentions_thoughts_pictures_calls_and_results() -> None:
    asked, answer, results, last, compaction, resumed, end = [
        item.body for item in path_of(parse(CONTENT))
    ]
    assert isinstance(asked, Message)
    text, mention, picture = asked.parts
    assert text == TextPart("Which apples keep longest? See ")
    assert mention == TextPart("@/home/ana/orchard/apples.txt\nBoskoop\nElstar\n")
    assert isinstance(picture, MediaPart)
    assert isinstance(answer, Message)
    assert answer.parts == (
        ThinkingPart("The list knows."),
        ThinkingPart("", is_redacted=True),
        TextPart("I read the list."),
        ToolCallPart("toolu_1", "read_file", {"path": "apples.txt"}),
        ToolCallPart("toolu_2", "terminal", {"input": "ls"}),
    )
    assert isinstance(results, Message)
    read, cancelled = results.parts
    assert isinstance(read, ToolResultPart)
    assert (read.call_id, read.text, read.name) == ("toolu_1", "Boskoop", "read_file")
    assert [media.mime_type for media in read.media] == ["image/png"]
    assert cancelled == ToolResultPart(
        "toolu_2", "Tool canceled by user", is_error=True, name="terminal"
    )
    assert isinstance(last, Message)
    assert (last.text, last.stop_reason) == ("Boskoop keeps longest.", "stop")
    assert isinstance(compaction, Compaction)
    assert compaction.summary == "The user asked about apples; Boskoop keeps longest."
    assert isinstance(resumed, CustomMessage)
    assert isinstance(end, Message)


def test_thread_of_an_earlier_version_is_read() -> None:
    parsed = parse(EARLY)
    check_items(parsed)
    assert (parsed.warnings, parsed.malformed) == ((), ())
    assert (parsed.header.session, parsed.header.cwd) == ("old-thread", "/home/ana/orchard")
    asked, answer, results, last = [item.body for item in path_of(parsed)]
    assert parsed.items[0].at == parsed.items[-1].at == 1_748_768_100_000
    assert isinstance(asked, Message)
    assert asked.parts == (TextPart("Which apples?"), TextPart("<context>the orchard</context>"))
    assert isinstance(answer, Message)
    assert answer.tool_calls == (ToolCallPart("t1", "list", {"path": "."}),)
    assert results == Message("tool", (ToolResultPart("t1", "apples.txt"),))
    assert isinstance(last, Message)
    assert last.text == "Boskoop."
    assert b"c2VjcmV0" not in repr(parsed.items).encode()


def test_lines_that_are_not_messages_are_reported() -> None:
    parsed = parse(b'noise\n[1]\n{"program":"zed","message":null}\n' + CONTENT)
    check_items(parsed)
    assert [line.number for line in parsed.malformed] == [1, 2, 3]
    assert texts_on(path_of(parsed))[-1] == "And pears: Conference."


def test_thread_document_is_read_as_lines(tmp_path: Path) -> None:
    path = stored(tmp_path / "threads.db", row_of(CONTENT), row_of(EARLY))
    new, early = lines_of(path)
    assert as_records(new) == [json.loads(line) for line in CONTENT.splitlines()]
    *said, _last = as_records(early)
    assert said == [json.loads(line) for line in EARLY.splitlines()][:-1]


async def test_thread_that_grows_is_imported_again(tmp_path: Path) -> None:
    path = stored(tmp_path / "threads.db", row_of(CONTENT, 2, summary="New thread"))
    store = empty_store()
    reports = [(await outcomes(store, path))[0].report]
    stored(path, row_of(CONTENT))
    reports += [(await outcomes(store, path))[0].report for _ in range(2)]
    assert [(r.session, r.format, r.is_new) for r in reports if r is not None] == [
        (ID, "zed", True),
        (ID, "zed", False),
        (ID, "zed", False),
    ]
    assert [r.messages for r in reports if r is not None] == [3, 2, 0]
    assert [info.title for info in await store.sessions()] == ["Apples that keep"]


async def test_damaged_thread_does_not_stop_import_of_other_threads(tmp_path: Path) -> None:
    whole = row_of(CONTENT)
    data = whole["data"]
    assert isinstance(data, bytes)
    path = stored(
        tmp_path / "threads.db",
        {**whole, "id": "cut", "data": data[:-20]},
        {**whole, "id": "damaged", "data": b"\x28\xb5\x2f\xfd" + data[9:]},
        {**whole, "id": "unknown", "data_type": "brotli"},
        {**whole, "id": "empty", "data_type": "json", "data": b"{}"},
        row_of(EARLY),
    )
    *failed, last = await outcomes(empty_store(), path)
    assert [str(outcome.error).partition(": ")[2] for outcome in failed] == [
        "its compressed data is cut off",
        str(failed[1].error).partition(": ")[2],
        "unknown data type 'brotli': Zed knows json and zstd",
        "it has no thread of Zed",
    ]
    assert "cannot be decompressed" in str(failed[1].error)
    assert all(isinstance(outcome.error, FormatError) for outcome in failed)
    assert last.report is not None
    assert last.report.session == "old-thread"


def test_document_that_is_too_large_uncompressed_is_rejected(tmp_path: Path) -> None:
    bomb = {**row_of(CONTENT), "data": zstd.compress(b" " * 50_000_000)}
    path = stored(tmp_path / "threads.db", bomb)
    before = limits()
    use_input_limits(InputLimits(import_file_bytes=1_000_000))
    try:
        (error,) = lines_of(path)
    finally:
        use_input_limits(before)
    assert isinstance(error, LimitExceeded)


def test_error_for_a_missing_library_mentions_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = stored(tmp_path / "threads.db", row_of(CONTENT))
    monkeypatch.setitem(sys.modules, zstd.__name__, None)
    (error,) = lines_of(path)
    assert "pip install 'perdure[zed]'" in str(error)


def test_database_without_newer_columns_is_read(tmp_path: Path) -> None:
    path = tmp_path / "threads.db"
    columns = ("id", "summary", "updated_at", "data_type", "data")
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"CREATE TABLE threads ({', '.join(columns)})")
        row = row_of(CONTENT)
        insert = "INSERT INTO threads VALUES (?, ?, ?, ?, ?)"
        database.execute(insert, [row[name] for name in columns])
        database.commit()
    (lines,) = lines_of(path)
    assert isinstance(lines, bytes)
    header = parse(lines).header
    assert (header.session, header.cwd) == (ID, "/home/ana/orchard")
    assert header.created_at == 1_777_626_000_000
    *_, last = lines.splitlines()
    rest = json.loads(last)
    del rest["thread"]["initial_project_snapshot"]
    header = parse(json.dumps(rest).encode()).header
    assert (header.cwd, header.created_at) == (None, 1_777_626_300_000)
