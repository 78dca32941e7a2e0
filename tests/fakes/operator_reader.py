"""A reader of Operator's session files that shares no code with perdure's.

The reader follows only the description of the format. A line ends at every line end that Python's
`str.splitlines` knows. The reader checks each line field by field and drops invalid lines. The leaf
is the last record or the target of the last ``leaf`` record. The context is built from the branch.
Source: Operator's session and context rules (2026), header version 3.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

Record = dict[str, Any]
Spoken = tuple[str, tuple[Any, ...]]
"""A message of the context: its role, and its parts in a form that can be compared."""

_FIELDS: dict[str, tuple[str, ...]] = {
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
_PARTS: dict[str, tuple[str, ...]] = {
    "text": ("content",),
    "image": ("images",),
    "audio": ("audio",),
    "thinking": ("content", "signature"),
    "tool_call": ("id", "name", "args", "metadata"),
    "tool_result": ("id", "content", "is_error", "metadata", "terminate"),
}
_STOP_REASONS = ("stop", "length", "tool_calls", "content_filter", "abort", "error")


@dataclass(frozen=True)
class OperatorSession:
    """A session in Operator's in-memory form."""

    header: Record
    records: list[Record]
    dropped: int
    leaf: str | None

    @property
    def by_id(self) -> dict[str, Record]:
        """Return the records by id; of two records with the same id, the last one."""
        return {record["id"]: record for record in self.records}

    @property
    def labels(self) -> dict[str, str]:
        """Map the id of each labelled record to its current label."""
        labels: dict[str, str] = {}
        for record in self.records:
            if record["type"] == "label":
                labels.pop(record["target_id"], None)
                if record.get("label"):
                    labels[record["target_id"]] = record["label"]
        return labels

    @property
    def name(self) -> str | None:
        """Return the name of the session."""
        names = [r.get("name") for r in self.records if r["type"] == "session_info"]
        return names[-1] if names else None

    def branch(self) -> list[Record]:
        """The records from the root to the leaf."""
        path: list[Record] = []
        by_id, seen, cursor = self.by_id, set[str](), self.leaf
        while cursor is not None and cursor in by_id and cursor not in seen:
            seen.add(cursor)
            path.append(by_id[cursor])
            cursor = path[-1].get("parent_id")
        return path[::-1]

    def context(self) -> list[Spoken]:
        """Return the messages for a model, before they are adapted to a provider."""
        path = self.branch()
        at = max((n for n, r in enumerate(path) if r["type"] == "compaction"), default=None)
        if at is None:
            return [said for record in path for said in _emitted(record)]
        summary = path[at]
        ids = [record["id"] for record in path[:at]]
        first = summary["first_kept_entry_id"]
        kept = path[ids.index(first) : at] if first in ids else []
        spoken = [said for record in (*kept, *path[at + 1 :]) for said in _emitted(record)]
        return [("summary", (summary["summary"],)), *spoken]

    def model(self) -> tuple[str, str] | None:
        """Return the newest provider and model of the branch."""
        changes = [record for record in self.branch() if record["type"] == "model_change"]
        return (changes[-1]["provider_id"], changes[-1]["model_id"]) if changes else None


def read(content: bytes) -> OperatorSession:
    """Read the session from the file `content`."""
    objects = [_object(line) for line in content.decode().splitlines() if line.strip()]
    header = objects[0]
    assert header is not None, "the first line is no record"
    assert header["type"] in ("session", "session_header")
    assert isinstance(header["id"], str)
    records = [each for each in objects[1:] if each is not None and _fits(each)]
    leaf: str | None = None
    for record in records:
        leaf = record.get("target_id") if record["type"] == "leaf" else record["id"]
    return OperatorSession(header, records, len(objects) - 1 - len(records), leaf)


def _object(line: str) -> Record | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return cast("Record", value) if isinstance(value, dict) else None


def _fits(record: Record) -> bool:
    fields = _FIELDS.get(record.get("type", ""))
    if fields is None or not isinstance(record.get("timestamp"), float):
        return False
    if not isinstance(record.get("id"), str) or any(name not in record for name in fields):
        return False
    return record["type"] != "message" or _is_message(record["message"])


def _is_message(message: Record) -> bool:
    if not all(name in message for name in ("contents", "id", "timestamp", "role")):
        return False
    if not all(_is_part(part) for part in message["contents"]):
        return False
    if message["role"] == "assistant":
        return message["stop_reason"] in _STOP_REASONS and isinstance(message["error"], str)
    return message["role"] in ("user", "system", "tool")


def _is_part(part: Record) -> bool:
    fields = _PARTS.get(part.get("type", ""))
    return fields is not None and all(name in part for name in fields)


def _emitted(record: Record) -> list[Spoken]:
    match record["type"]:
        case "message":
            message = record["message"]
            return [(message["role"], tuple(map(_spoken, message["contents"])))]
        case "custom_message":
            return [("user", tuple(map(_spoken, record["content"])))]
        case "branch_summary":
            return [("branch", (record["summary"],))]
        case _:
            return []


def _spoken(part: Record) -> Any:
    match part["type"]:
        case "text" | "thinking":
            return (part["type"], part["content"])
        case "image":
            return ("media", *part["images"])
        case "audio":
            return ("media", part["audio"])
        case "tool_call":
            return ("call", part["id"], part["name"], json.dumps(part["args"], sort_keys=True))
        case _:
            return ("result", part["id"], part["content"], part["is_error"])
