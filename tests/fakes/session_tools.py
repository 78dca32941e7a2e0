"""The parts of Operator and pi that read and append to session files. The parts use no code of
perdure.

This module was written from the descriptions of the two tools, not from perdure's store. Each tool
reads by its own rules: Operator ends lines at every Unicode line end and drops records that do not
fit its schema; pi accepts any JSON. Each tool keeps its own leaf, and appends without a lock and
without reading the file again.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

Record = dict[str, Any]
Piece = tuple[str, str]
"""A piece of a context: its speaker (user, assistant, call, tool, system), and its text."""


class Operator:
    """One Operator process with a session open. `context` contains the messages for a model."""

    REQUIRED: ClassVar[dict[str, tuple[str, ...]]] = {
        "message": ("message",),
        "thinking_level_change": ("thinking_level",),
        "model_change": ("model_id", "provider_id"),
        "compaction": ("summary", "first_kept_entry_id", "tokens_before"),
        "branch_summary": ("from_id", "summary"),
        "label": ("target_id",),
        "leaf": (),
        "session_info": (),
        "custom": ("custom_type",),
        "custom_message": ("custom_type", "content"),
        "channel": ("name",),
    }

    def __init__(self, path: Path, seed: int = 0) -> None:
        self.path = path
        self._random = random.Random(seed)
        self.header: Record | None = None
        self.entries: list[Record] = []
        self.by_id: dict[str, Record] = {}
        self.leaf: str | None = None
        for line in path.read_bytes().decode("utf-8", "replace").splitlines():
            record = parsed(line)
            if record is None:
                continue
            if self.header is None:
                if record.get("type") not in ("session", "session_header"):
                    return
                self.header = record
            elif self._is_valid(record):
                self._index(record)

    def _is_valid(self, record: Record) -> bool:
        required = self.REQUIRED.get(record.get("type", ""))
        is_placed = isinstance(record.get("id"), str) and isinstance(
            record.get("timestamp"), int | float
        )
        return required is not None and is_placed and all(name in record for name in required)

    def _index(self, record: Record) -> None:
        self.entries.append(record)
        self.by_id[record["id"]] = record
        self.leaf = record.get("target_id") if record["type"] == "leaf" else record["id"]

    def branch_records(self) -> list[Record]:
        """The records of the branch, from root to leaf."""
        path: list[Record] = []
        cursor, seen = self.leaf, set[str]()
        while cursor is not None and cursor in self.by_id and cursor not in seen:
            seen.add(cursor)
            path.append(self.by_id[cursor])
            cursor = self.by_id[cursor].get("parent_id")
        return path[::-1]

    def context(self) -> list[Piece]:
        """Return the messages for a model."""
        path = self.branch_records()
        compactions = [n for n, record in enumerate(path) if record["type"] == "compaction"]
        if not compactions:
            return [piece for record in path for piece in self._pieces(record)]
        at = compactions[-1]
        kept_from = at
        for number in range(at):
            if path[number]["id"] == path[at]["first_kept_entry_id"]:
                kept_from = number
                break
        shown = [*path[kept_from:at], *path[at + 1 :]]
        summary = ("user", path[at]["summary"])
        return [summary, *(piece for record in shown for piece in self._pieces(record))]

    def _pieces(self, record: Record) -> Iterator[Piece]:
        if record["type"] == "branch_summary":
            yield ("user", record["summary"])
        elif record["type"] == "custom_message":
            for part in record["content"]:
                if part["type"] == "text":
                    yield ("user", part["content"])
        elif record["type"] == "message":
            message = record["message"]
            for part in message["contents"]:
                if part["type"] == "text":
                    yield (message["role"], part["content"])
                elif part["type"] == "tool_call":
                    yield ("call", part["id"])
                elif part["type"] == "tool_result":
                    yield ("tool", part["content"])

    # -- appending

    def _append(self, record: Record) -> str:
        place: Record = {"id": f"{self._random.getrandbits(32):08x}", "timestamp": 1750000000.5}
        if self.leaf is not None:
            place["parent_id"] = self.leaf
        whole = {**place, **record}
        with self.path.open("ab") as file:
            file.write(json.dumps(whole, ensure_ascii=False).encode() + b"\n")
        self._index(whole)
        return whole["id"]

    def say(self, role: str, text: str) -> str:
        """Append a message."""
        message: Record = {
            "contents": [{"type": "text", "content": text}],
            "id": f"m{self._random.getrandbits(32):08x}",
            "timestamp": 1750000000.25,
            "role": role,
        }
        if role == "assistant":
            message |= {"usage": None, "stop_reason": "stop", "error": ""}
        return self._append({"type": "message", "message": message})

    def label(self, target: str, text: str) -> str:
        """Append a label."""
        return self._append({"type": "label", "label": text, "target_id": target})

    def branch(self, target: str) -> None:
        """Continue from `target`."""
        self._append({"type": "leaf", "target_id": target})

    def rewrite(self) -> None:
        """Write the whole file again from the parsed records, as Operator's `add_reaction` does."""
        known = ("id", "timestamp", "parent_id", "type")
        optional = ("details", "from_hook", "label", "name", "data", "display", "target_id")
        lines = [
            {key: self.header[key] for key in ("type", "version", "id", "timestamp", "cwd")}
            if self.header
            else {}
        ]
        for record in self.entries:
            fields = (*known, *self.REQUIRED[record["type"]], *optional)
            lines.append({key: record[key] for key in fields if key in record})
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        self.path.write_bytes(text.encode())


class Pi:
    """One pi process with a session open."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        self.path = path
        self._random = random.Random(seed)
        self.header: Record | None = None
        self.by_id: dict[str, Record] = {}
        self.leaf: str | None = None
        for line in path.read_bytes().decode("utf-8", "replace").split("\n"):
            record = parsed(line)
            if record is None:
                continue
            if self.header is None:
                if record.get("type") != "session":
                    return
                self.header = record
            elif record.get("type") != "session":
                self._index(record)

    def _index(self, record: Record) -> None:
        self.by_id[record["id"]] = record
        self.leaf = record["id"]

    def branch_records(self) -> list[Record]:
        """The records of the branch, from root to leaf."""
        path: list[Record] = []
        cursor = self.leaf
        while cursor is not None and cursor in self.by_id:
            path.append(self.by_id[cursor])
            cursor = self.by_id[cursor]["parentId"]
        return path[::-1]

    def context(self) -> list[Piece]:
        """Return the messages for a model."""
        path = self.branch_records()
        compactions = [n for n, record in enumerate(path) if record["type"] == "compaction"]
        if not compactions:
            return [piece for record in path for piece in self._pieces(record)]
        at = compactions[-1]
        tail = path[at].get("retainedTail")
        kept: list[Record] = []
        if tail is not None:
            kept = [{"type": "message", "message": message} for message in tail]
        else:
            first = path[at]["firstKeptEntryId"]
            is_kept = False
            for record in path[:at]:
                is_kept = is_kept or record["id"] == first
                kept += [record] if is_kept else []
        shown = [*kept, *path[at + 1 :]]
        summary = ("user", path[at]["summary"])
        return [summary, *(piece for record in shown for piece in self._pieces(record))]

    def _pieces(self, record: Record) -> Iterator[Piece]:
        if record["type"] == "branch_summary" and record["summary"]:
            yield ("user", record["summary"])
        elif record["type"] == "custom_message":
            yield from self._texts("user", record["content"])
        elif record["type"] == "message":
            message = record["message"]
            role: str = "tool" if message["role"] == "toolResult" else message["role"]
            yield from self._texts(role, message["content"])

    def _texts(self, role: str, content: str | list[Record]) -> Iterator[Piece]:
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part["type"] == "text":
                yield (role, part["text"])
            elif part["type"] == "toolCall":
                yield ("call", part["id"])

    # -- appending

    def _append(self, record: Record) -> str:
        place: Record = {
            "id": f"{self._random.getrandbits(32):08x}",
            "parentId": self.leaf,
            "timestamp": "2025-06-15T15:06:40.500Z",
        }
        whole = {"type": record["type"], **place, **record}
        with self.path.open("ab") as file:
            file.write(json.dumps(whole, ensure_ascii=False).encode() + b"\n")
        self._index(whole)
        return whole["id"]

    def say(self, role: str, text: str) -> str:
        """Append a message."""
        message: Record = {
            "role": role,
            "content": [{"type": "text", "text": text}],
            "timestamp": 1750000000250,
        }
        if role == "assistant":
            message |= {"provider": "openai", "model": "x", "stopReason": "stop", "usage": {}}
        return self._append({"type": "message", "message": message})

    def label(self, target: str, text: str) -> str:
        """Append a label."""
        return self._append({"type": "label", "targetId": target, "label": text})

    def branch(self, target: str) -> None:
        """Continue from `target`. Nothing is written, because pi stores the leaf only in memory."""
        self.leaf = target


Tool = Operator | Pi


def tool(dialect: str, path: Path, seed: int = 0) -> Tool:
    """Open the session in `path` as pi or as Operator, depending on `dialect`."""
    return Pi(path, seed) if dialect == "pi" else Operator(path, seed)


def parsed(line: str) -> Record | None:
    """Return the object in `line`, or None if it contains no object."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return cast("Record", value) if isinstance(value, dict) else None
