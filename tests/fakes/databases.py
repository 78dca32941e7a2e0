"""Databases in the format of other programs, built from the rows of the fixtures."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

GOOSE = """
CREATE TABLE schema_version (version INTEGER PRIMARY KEY, applied_at TIMESTAMP);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, name TEXT NOT NULL DEFAULT '', description TEXT NOT NULL DEFAULT '',
    user_set_name BOOLEAN DEFAULT FALSE, session_type TEXT NOT NULL DEFAULT 'user',
    working_dir TEXT NOT NULL, created_at TIMESTAMP, updated_at TIMESTAMP,
    extension_data TEXT DEFAULT '{}', total_tokens INTEGER, input_tokens INTEGER,
    output_tokens INTEGER, provider_name TEXT, model_config_json TEXT
);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, message_id TEXT,
    session_id TEXT NOT NULL REFERENCES sessions(id), role TEXT NOT NULL,
    content_json TEXT NOT NULL, created_timestamp INTEGER NOT NULL, timestamp TIMESTAMP,
    tokens INTEGER, metadata_json TEXT
);
CREATE INDEX idx_messages_session ON messages(session_id);
"""

CURSOR = """
CREATE TABLE ItemTable (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
CREATE TABLE cursorDiskKV (key TEXT UNIQUE ON CONFLICT REPLACE, value BLOB);
"""

ZED = """
CREATE TABLE IF NOT EXISTS threads (
    id TEXT PRIMARY KEY, summary TEXT NOT NULL, updated_at TEXT NOT NULL,
    data_type TEXT NOT NULL, data BLOB NOT NULL
);
ALTER TABLE threads ADD COLUMN parent_id TEXT;
ALTER TABLE threads ADD COLUMN folder_paths TEXT;
ALTER TABLE threads ADD COLUMN folder_paths_order TEXT;
ALTER TABLE threads ADD COLUMN created_at TEXT;
"""


def rows_in(lines: bytes) -> list[tuple[str, dict[str, object]]]:
    """Return the rows of a fixture with their tables."""
    records = [json.loads(line) for line in lines.splitlines()]
    return [(record["table"], record["row"]) for record in records]


def make_database(
    path: Path, schema: str, rows: Sequence[tuple[str, Mapping[str, object]]]
) -> None:
    """Write a database with `schema` and `rows` to `path`; if it exists, only add the rows."""
    is_new = not path.exists()
    with closing(sqlite3.connect(path)) as database:
        if is_new:
            database.executescript(schema)
        for table, row in rows:
            columns, marks = ", ".join(row), ", ".join("?" * len(row))
            database.execute(
                f"INSERT OR REPLACE INTO {table} ({columns}) VALUES ({marks})", tuple(row.values())
            )
        database.commit()
