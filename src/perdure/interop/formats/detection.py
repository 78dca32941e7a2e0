"""What format a file is in, by what it holds, never by its name."""

from __future__ import annotations

from typing import Literal

from perdure.codecs.fields import (
    Fields,
    fields_of,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
)
from perdure.codecs.lines import read_line
from perdure.interop.formats.claude_code.reader import QUIET
from perdure.interop.formats.codex.reader import ENVELOPES as CODEX_ENVELOPES
from perdure.interop.formats.opencode.reader import BEGINNING as OPENCODE
from perdure.interop.formats.operator.reader import LEGACY_HEADER
from perdure.interop.formats.sources.content import Content, lines_in

Format = Literal["perdure", "pi", "claude-code", "operator", "codex", "opencode"]

LINES_LOOKED_AT = 200
"""So many lines may come before the first one that tells the format."""

_BEGINNING_BYTES = 65_536

_PI_TYPES = frozenset(
    {
        "message",
        "thinking_level_change",
        "model_change",
        "compaction",
        "branch_summary",
        "label",
        "session_info",
        "custom",
        "custom_message",
    }
)
_OPERATOR_TYPES = frozenset({*_PI_TYPES, "leaf", "channel"})
_CODEX_BARE_FIELDS = {
    "reasoning": "encrypted_content",
    "function_call": "call_id",
    "function_call_output": "call_id",
}
_CODEX_CONTENT = frozenset({"input_text", "output_text", "input_image"})
_CLAUDE_TYPES = frozenset({"user", "assistant", "system", "attachment", "progress"})


def detect_format(content: Content) -> Format | None:
    """The format of the session in `content`; None when nothing in it tells."""
    if OPENCODE.match(content.read(0, _BEGINNING_BYTES)):
        return "opencode"
    for line in lines_in(content):
        if line.number > LINES_LOOKED_AT:
            break
        fields = fields_of(read_line(line.content).value)
        found = None if fields is None else _format_of(fields)
        if found is not None:
            return found
    return None


def has_line_of(content: Content, format: Format) -> bool:
    """Return whether a line of `content` is a record of `format`, wherever it is."""
    if format == "opencode":
        return OPENCODE.match(content.read(0, _BEGINNING_BYTES)) is not None
    records = (fields_of(read_line(line.content).value) for line in lines_in(content))
    return any(fields is not None and _format_of(fields) == format for fields in records)


_PACKED = (
    (
        (b"\x1f\x8b", b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ"),
        "it is compressed; unpack it",
    ),
    ((b"\xff\xfe", b"\xfe\xff"), "it is UTF-16, and sessions are UTF-8; convert it"),
)
"""How a file begins that may hold a session once something was done to it, and what that is."""


def packed_as(content: Content) -> str | None:
    """What is to be done to `content` before anything in it can tell; None when nothing helps."""
    start = content.read(0, 8)
    return next((advice for starts, advice in _PACKED if start.startswith(starts)), None)


def _format_of(fields: Fields) -> Format | None:
    kind = name_in(fields, "type")
    if kind == "perdure":
        return "perdure"
    if _is_pi(fields, kind):
        return "pi"
    if _is_claude_code(fields, kind):
        return "claude-code"
    if _is_codex(fields, kind):
        return "codex"
    return "operator" if _is_operator(fields, kind) else None


def _is_pi(fields: Fields, kind: str | None) -> bool:
    """Tell pi from Operator, whose records are alike, but with times as numbers and snake case."""
    if text_in(fields, "timestamp") is None or "parent_id" in fields:
        return False
    if kind == "session":
        return name_in(fields, "id") is not None
    if kind == "message" and "message" not in fields:
        return False
    return kind in _PI_TYPES and "sessionId" not in fields and "uuid" not in fields


def _is_operator(fields: Fields, kind: str | None) -> bool:
    if kind == LEGACY_HEADER:
        return name_in(fields, "id") is not None and "created_at" in fields
    if kind is None:  # legacy, whose lines are bare messages
        return name_in(fields, "role") is not None and "contents" in fields
    if kind == "session_header":
        return name_in(fields, "id") is not None
    if kind == "message" and object_in(fields, "message") is None:
        return False
    is_snake = "parent_id" in fields or number_in(fields, "timestamp") is not None
    return is_snake and name_in(fields, "id") is not None and kind in {*_OPERATOR_TYPES, "session"}


def _is_codex(fields: Fields, kind: str | None) -> bool:
    if kind in CODEX_ENVELOPES:
        return object_in(fields, "payload") is not None
    if kind is None:  # the first versions, without envelopes
        has_header = name_in(fields, "id") is not None and text_in(fields, "timestamp") is not None
        return name_in(fields, "record_type") == "state" or (
            has_header and ("instructions" in fields or "git" in fields)
        )
    if kind == "message":
        parts = (fields_of(part) or {} for part in list_in(fields, "content") or ())
        return any(name_in(part, "type") in _CODEX_CONTENT for part in parts)
    return kind in _CODEX_BARE_FIELDS and _CODEX_BARE_FIELDS[kind] in fields


def _is_claude_code(fields: Fields, kind: str | None) -> bool:
    if kind is None:
        return False
    if "sessionId" in fields and ("uuid" in fields or "parentUuid" in fields or kind in QUIET):
        return True
    if kind == "file-history-snapshot":
        return object_in(fields, "snapshot") is not None
    if kind in _CLAUDE_TYPES and ("uuid" in fields or "parentUuid" in fields):
        return True
    return kind == "summary" and "leafUuid" in fields
