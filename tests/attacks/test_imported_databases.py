"""Databases that an attacker might have prepared: they run no code, and reading them ends."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from perdure.errors import PerdureError, UnknownFormat
from perdure.interop.bulk import import_files
from perdure.interop.containers import sessions_in
from perdure.interop.formats.sources import database as reading
from perdure.interop.formats.sources.content import FileContent
from perdure.interop.reports import FileOutcome
from tests.fakes.clock import ManualClock, SeededRandom
from tests.fakes.databases import GOOSE, make_database, rows_in
from tests.fakes.sources import FIXTURES, empty_store

ROWS = rows_in((FIXTURES / "goose" / "session.jsonl").read_bytes())
SESSION = "id TEXT, working_dir TEXT, created_at TEXT"
MESSAGE = "id, session_id, role, content_json, created_timestamp"


async def outcomes(*paths: Path) -> list[FileOutcome]:
    found = import_files(empty_store(), paths, clock=ManualClock(), random=SeededRandom(2))
    return [outcome async for outcome in found]


def refusal_of(path: Path) -> PerdureError:
    with FileContent(path) as content, pytest.raises(PerdureError) as raised:
        list(sessions_in(content) or ())
    return raised.value


VIEW = f"""
CREATE TABLE sessions ({SESSION});
CREATE VIEW messages AS
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)
SELECT x AS id, '' AS session_id, '' AS role, '' AS content_json, 1 AS created_timestamp FROM n
"""
GENERATED = f"""
CREATE TABLE sessions ({SESSION}, big AS (hex(zeroblob(400000000))));
CREATE TABLE messages ({MESSAGE})
"""
VIRTUAL = f"""
CREATE TABLE sessions ({SESSION});
CREATE VIRTUAL TABLE messages USING fts5({MESSAGE})
"""


def make_link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("schema", [VIEW, GENERATED, VIRTUAL])
def test_view_or_trigger_instead_of_table_is_refused(schema: str, tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    make_database(path, schema, [])
    assert isinstance(refusal_of(path), UnknownFormat)


def test_database_read_that_takes_too_many_steps_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "sessions.db"
    make_database(path, GOOSE, ROWS)
    with closing(sqlite3.connect(path)) as database:
        database.execute("DROP INDEX idx_messages_session")
        row = ("x", "user", "[]", 1)
        insert = (
            "INSERT INTO messages (session_id, role, content_json, created_timestamp) "
            "VALUES (?, ?, ?, ?)"
        )
        database.executemany(insert, [row] * 30_000)
        database.commit()
    monkeypatch.setattr(reading, "_MOST_STEPS", 0)
    with FileContent(path) as content:
        (error,) = list(sessions_in(content) or ())
    assert "takes too much" in str(error)


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("make", [make_pipe, make_link])
def test_pipe_or_link_beside_a_database_is_refused(
    make: Callable[[Path], object], end: str, tmp_path: Path
) -> None:
    path = tmp_path / "sessions.db"
    make_database(path, GOOSE, ROWS)
    make(path.with_name(path.name + end))
    assert "not a regular file" in str(refusal_of(path))


async def test_damaged_database_is_reported_and_the_next_file_is_read(tmp_path: Path) -> None:
    whole = tmp_path / "whole" / "sessions.db"
    whole.parent.mkdir()
    make_database(whole, GOOSE, ROWS)
    content = whole.read_bytes()
    paths: list[Path] = []
    for number, spoilt in enumerate(
        [content[:100], content[:4_200], content[:100] + b"\xff" * 3_000 + content[3_100:]]
    ):
        paths.append(tmp_path / f"{number}.db")
        paths[-1].write_bytes(spoilt)
    *failed, last = await outcomes(*paths, whole)
    assert len(failed) == len(paths)
    assert all(isinstance(outcome.error, PerdureError) for outcome in failed)
    assert last.report is not None


async def test_database_values_of_any_type_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sessions.db"
    hostile: list[tuple[str, dict[str, object]]] = [
        ("sessions", {"id": "x", "working_dir": b"\x00\xff", "created_at": 1e999}),
        ("sessions", {"id": b"y", "working_dir": "/", "created_at": ""}),
    ]
    for value in (b"\xff", "[" * 10_000, '{"type":"text"}', "[1,null,[],{}]", 1.5, "\ud83d"[:0]):
        row: dict[str, object] = {
            "session_id": "x",
            "role": "user",
            "content_json": value,
            "created_timestamp": "never",
        }
        hostile.append(("messages", row))
    make_database(path, GOOSE, hostile)
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE messages SET role = CAST(x'ff75' AS TEXT) WHERE id = 1")
        database.commit()
    (outcome,) = await outcomes(path)
    assert outcome.report is not None
    assert outcome.report.session == "x"
    assert outcome.report.skipped >= 4
