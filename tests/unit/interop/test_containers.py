"""Files that contain several sessions: each is imported, whatever the others contain."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from perdure.bounds.limits import InputLimits, limits, use_input_limits
from perdure.errors import FormatError, LimitExceeded, UnknownFormat
from perdure.interop.bulk import import_files
from perdure.interop.containers import is_known_name, sessions_in
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.reports import FileOutcome
from perdure.session.codec import readable
from perdure.session.messages import Message
from perdure.stores.session_store import SessionStore
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.databases import GOOSE, make_database, rows_in
from tests.fakes.sources import FIXTURES, empty_store

LINES = (FIXTURES / "goose" / "session.jsonl").read_bytes()
ROWS = rows_in(LINES)


def other_session(id: str) -> list[tuple[str, dict[str, object]]]:
    content = '[{"type":"text","text":"Plums?"}]'
    return [
        ("sessions", {"id": id, "working_dir": "/home/bo", "created_at": "2026-05-02 09:00:00"}),
        (
            "messages",
            {
                "session_id": id,
                "role": "user",
                "content_json": content,
                "created_timestamp": 1_777_712_400,
            },
        ),
    ]


async def outcomes(store: SessionStore, *paths: Path) -> list[FileOutcome]:
    found = import_files(store, paths, clock=ManualClock(), random=SeededRandom(2))
    return [outcome async for outcome in found]


def sessions_of(path: Path) -> list[bytes]:
    with FileContent(path) as content:
        found = sessions_in(content)
        assert found is not None
        return [each.read(0, each.length) for each in found if not isinstance(each, Exception)]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "sessions.db"
    make_database(path, GOOSE, [*ROWS, *other_session("20260502_1")])
    return path


def test_each_session_of_a_database_has_its_rows_as_lines(database: Path) -> None:
    first, second = sessions_of(database)
    assert rows_in(first) == ROWS
    assert [row["id"] for table, row in rows_in(second) if table == "sessions"] == ["20260502_1"]


async def test_database_is_imported_as_sessions_and_later_rows_are_added(database: Path) -> None:
    store = empty_store()
    found = await outcomes(store, database)
    reports = [outcome.report for outcome in found if outcome.report is not None]
    assert [report.session for report in reports] == ["20260501_3", "20260502_1"]
    assert all(report.is_new and report.format == "goose" for report in reports)
    again = [outcome.report for outcome in await outcomes(store, database)]
    assert [report.entries for report in again if report is not None] == [0, 0]
    more = dict(other_session("20260502_1")[1][1], content_json='[{"type":"text","text":"Figs?"}]')
    renamed = dict(other_session("20260502_1")[0][1], name="Plums and figs")
    make_database(database, GOOSE, [("sessions", renamed), ("messages", more)])
    grown = [outcome.report for outcome in await outcomes(store, database)]
    assert [(r.session, r.messages) for r in grown if r is not None] == [
        ("20260501_3", 0),
        ("20260502_1", 1),
    ]
    entries = await store.entries(reports[1].session)
    bodies = [readable(entry) for entry in entries]
    assert [b.text for b in bodies if isinstance(b, Message)] == ["Plums?", "Figs?"]
    titles = {info.id: info.title for info in await store.sessions()}
    assert titles[reports[1].session] == "Plums and figs"


async def test_session_migrated_into_goose_database_is_imported_once(tmp_path: Path) -> None:
    file, database, store = (
        tmp_path / "20250101_090000.jsonl",
        tmp_path / "sessions.db",
        empty_store(),
    )
    file.write_bytes((FIXTURES / "goose" / "legacy.jsonl").read_bytes())
    header, *said = map(json.loads, file.read_bytes().splitlines())
    rows: list[tuple[str, dict[str, object]]] = [
        (
            "messages",
            {
                "session_id": file.stem,
                "role": message["role"],
                "content_json": json.dumps(message["content"]),
                "created_timestamp": message["created"],
            },
        )
        for message in said
    ]
    session: dict[str, object] = {"id": file.stem, "working_dir": header["working_dir"]}
    created = {"created_at": "2025-01-01 09:00:00", "name": "Renamed"}
    rows.append(("sessions", session | created))
    make_database(database, GOOSE, rows)
    for path, messages in ((file, 3), (database, 0), (file, 0)):
        (outcome,) = await outcomes(store, path)
        assert outcome.report is not None
        assert (outcome.report.session, outcome.report.messages) == (file.stem, messages)


async def test_too_large_session_does_not_stop_import_of_other_sessions(database: Path) -> None:
    before = limits()
    use_input_limits(InputLimits(import_file_bytes=1_000))
    try:
        large, small = await outcomes(empty_store(), database)
    finally:
        use_input_limits(before)
    assert isinstance(large.error, LimitExceeded)
    assert small.report is not None


def test_requested_format_must_match_the_database(database: Path) -> None:
    with FileContent(database) as content:
        found = sessions_in(content, "codex")
        assert found is not None
        with pytest.raises(FormatError, match="it is the database of Goose, not of codex"):
            next(found)


def test_error_for_unknown_database_lists_supported_formats(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    make_database(path, "CREATE TABLE notes (x)", [])
    with FileContent(path) as content:
        found = sessions_in(content)
        assert found is not None
        with pytest.raises(UnknownFormat, match=r"supported: Goose"):
            next(found)


def test_file_with_one_session_is_not_a_container(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(LINES)
    with FileContent(path) as content:
        assert sessions_in(content) is None
    names = ("sessions.db", "T-5b.json", ".aider.chat.history.md", "notes.md", "t.json", "x.db")
    assert [name for name in names if is_known_name(name)] == list(names[:3])


def test_changes_in_the_write_ahead_log_are_read(database: Path) -> None:
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("UPDATE sessions SET name = 'In the log'")
        writer.commit()
        assert b"In the log" in sessions_of(database)[0]
    assert b"In the log" in sessions_of(database)[1]
    assert [path.name for path in database.parent.iterdir()] == ["sessions.db"]
