"""Read the sessions of GitHub Copilot CLI: ``events.jsonl``, one event per line.

Each event names its predecessor. Events of subagents, and all events other than messages and tool
results, are stored outside the conversation. Reasoning in a separate event belongs to the next
answer. A line without a type is a message if it has a role and content; otherwise it is an unknown
event.
Source: ``session-events.ts`` of github/copilot-sdk, as of 2026.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from perdure.codecs.content import answer_of, call_of
from perdure.codecs.fields import (
    Fields,
    count_in,
    fields_of,
    list_in,
    name_in,
    object_in,
    text_in,
    time_in,
)
from perdure.codecs.lines import read_line
from perdure.codecs.media import unknown_part
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.parent_links import Linker
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import ImportedRecord

FORMAT: Final = "copilot-cli"
PROVIDER = "github"

_KINDS = ("session.", "assistant.", "user.", "tool.", "system.", "hook.", "subagent.")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_UNKNOWN = "unknown"
_OF_SUBAGENTS = ("agentId", "parentToolCallId")


def at_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header`; if the file lacks its first event, set the session id from the path."""
    path = path.absolute()
    name = path.parent.name if path.name == "events.jsonl" else path.stem
    if header.session is not None or not _UUID.fullmatch(name):
        return header
    return msgspec.structs.replace(header, session=name)


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is an event of Copilot CLI."""
    kind = name_in(fields, "type")
    return (
        kind is not None
        and kind.startswith(_KINDS)
        and object_in(fields, "data") is not None
        and name_in(fields, "id") is not None
        and "parentId" in fields
    )


class Reader(LineReader):
    """Reads a session and adds its items to `draft`."""

    foreign = "it is not an event of a session of Copilot CLI"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self._links = self.linker = Linker(draft, self._place)
        self._has_start = False
        self._assets: dict[str, tuple[int, int]] = {}  # the lines with bytes of attachments
        self._media: dict[str, MediaPart] = {}
        self._thought: str | None = None  # of the next answer

    def take_record(self, record: Record) -> None:
        """Read one record."""
        line, fields = record.line, record.fields
        kind, data = text_in(fields, "type"), object_in(fields, "data") or {}
        if not self._has_start and kind == "session.start":
            self._has_start, self.header = True, _header_of(data)
        self.header = self.header or SourceHeader()
        asset = name_in(data, "assetId")
        if kind == "session.binary_asset" and asset is not None:
            self._assets[asset] = (line.offset, len(line.content))
        record.id, record.parent = name_in(fields, "id"), name_in(fields, "parentId")
        record.at = time_in(fields, "timestamp")
        self._links.link(record, self.leaf.node)

    def _place(self, record: Record, parent: int | None) -> int | None:
        kind = text_in(record.fields, "type") or _UNKNOWN
        body = self._body_of(kind, record.fields)
        if body is None:
            self.draft.add(record, ImportedRecord(FORMAT, kind), parent)
            return parent
        node = self.draft.add(record, body, parent)
        self.leaf.follow(record, node)
        return node

    def _body_of(self, kind: str, fields: Fields) -> ItemBody | None:
        data = object_in(fields, "data") or {}
        told = (name_in(each, name) for each in (fields, data) for name in _OF_SUBAGENTS)
        if any(each is not None for each in told):
            return None
        if kind == "user.message":
            parts = self._asked(data)
            return Message("user", parts) if parts else None
        if kind == "tool.execution_complete":
            result = _result(data)
            return None if result is None else Message("tool", (result,))
        if kind == "assistant.reasoning":
            self._thought = text_in(data, "content") or self._thought
            return None
        if kind == "assistant.message":
            thought, self._thought = self._thought, None
            return _answer(data, thought)
        return _thin(fields) if kind == _UNKNOWN else None

    def _asked(self, data: Fields) -> tuple[Part, ...]:
        text = text_in(data, "content")
        parts: list[Part] = [TextPart(text)] if text else []
        for item in list_in(data, "attachments") or ():
            attached = fields_of(item) or {}
            medium = self._asset(name_in(attached, "assetId")) or self._medium(attached)
            parts.append(medium or unknown_part(item))
        return tuple(parts)

    def _asset(self, name: str | None) -> MediaPart | None:
        """Return the media part of the attachment `name`, whose bytes are in an earlier event."""
        known = None if name is None else self._media.get(name)
        if name is None or (known is not None and self.draft.media.holds(known)):
            return known
        place = self._assets.get(name)
        if place is None:
            return None
        fields = fields_of(read_line(self.draft.content.read(*place)).value) or {}
        part = self._medium(object_in(fields, "data") or {})
        if part is not None:
            self._media[name] = part
        return part

    def _medium(self, data: Fields) -> MediaPart | None:
        return self.draft.media.part(name_in(data, "data"), name_in(data, "mimeType"))


parse = whole_parser(FORMAT, Reader)


def _header_of(start: Fields) -> SourceHeader:
    version = name_in(start, "copilotVersion")
    return SourceHeader(
        session=name_in(start, "sessionId"),
        created_at=time_in(start, "startTime"),
        cwd=name_in(object_in(start, "context") or {}, "cwd"),
        metadata={} if version is None else {"version": version},
    )


def _thin(fields: Fields) -> Message | None:
    role, text = text_in(fields, "role"), text_in(fields, "content")
    if not text:
        return None
    if role == "assistant":
        return answer_of([TextPart(text)])
    return Message("user", (TextPart(text),)) if role == "user" else None


def _answer(data: Fields, thought: str | None) -> Message | None:
    parts: list[Part] = []
    if thought := text_in(data, "reasoningText") or thought:
        parts.append(ThinkingPart(thought))
    if text := text_in(data, "content"):
        parts.append(TextPart(text))
    parts += map(_call, list_in(data, "toolRequests") or ())
    if not parts:
        return None
    model, usage = name_in(data, "model"), Usage(output_tokens=count_in(data, "outputTokens"))
    return answer_of(parts, provider=PROVIDER, model=model, usage=usage)


def _call(item: object) -> Part:
    """Convert a tool call; a call without an id or a name becomes an unchanged unknown part."""
    request = fields_of(item) or {}
    arguments: object = request.get("arguments")
    if isinstance(arguments, str):  # of a custom tool
        arguments = {"input": arguments}
    call_id, name = name_in(request, "toolCallId"), name_in(request, "name")
    call = call_of(call_id, name, fields_of(arguments))
    return unknown_part(item) if call is None else call


def _result(data: Fields) -> ToolResultPart | None:
    call_id = name_in(data, "toolCallId")
    if call_id is None:
        return None
    has_failed = data.get("success") is False
    text = text_in(object_in(data, "result") or {}, "content")
    if text is None:
        text = text_in(object_in(data, "error") or {}, "message")
    return ToolResultPart(call_id, text or "", is_error=has_failed, name=name_in(data, "toolName"))
