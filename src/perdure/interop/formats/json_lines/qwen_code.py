"""Read the sessions of Qwen Code: ``chats/*.jsonl``, one record per line with its parent's id.

Messages have the form of Google's API, like those of Gemini CLI. Telemetry, snapshots and the
history that a compression wrote are stored outside the conversation.
Source: a session written by Qwen Code 0.15.
"""

from __future__ import annotations

from typing import Final

from perdure.codecs.content import answer_of, call_of, parts_of
from perdure.codecs.fields import (
    Fields,
    count_in,
    list_in,
    name_in,
    object_in,
    text_in,
    time_in,
)
from perdure.codecs.media import Media
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.json_lines.gemini_cli import part_of
from perdure.interop.formats.sources.parent_links import Linker
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, has_type, whole_parser
from perdure.session.messages import Message, Part, ToolResultPart, Usage
from perdure.session.notes import ImportedRecord

FORMAT: Final = "qwen-code"
PROVIDER = "qwen"


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a record of Qwen Code.

    Records of Claude Code look similar, but their messages have no `parts`.
    """
    if name_in(fields, "uuid") is None or name_in(fields, "sessionId") is None:
        return False
    message = object_in(fields, "message")
    return "systemPayload" in fields or (message is not None and "parts" in message)


class Reader(LineReader):
    """Reads a session and adds its items to `draft`."""

    foreign = "it is not a record of a session of Qwen Code"
    accepts = staticmethod(has_type)

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self._links = self.linker = Linker(draft, self._place)

    def take_record(self, record: Record) -> None:
        """Read one record."""
        fields = record.fields
        at, version = time_in(fields, "timestamp"), name_in(fields, "version")
        self.header = self.header or SourceHeader(
            session=name_in(fields, "sessionId"),
            created_at=at,
            cwd=name_in(fields, "cwd"),
            metadata={} if version is None else {"version": version},
        )
        record.id, record.parent = name_in(fields, "uuid"), name_in(fields, "parentUuid")
        record.at = at
        self._links.link(record, self.leaf.node)

    def _place(self, record: Record, parent: int | None) -> int | None:
        kind = text_in(record.fields, "type") or ""
        body = _body_of(kind, record.fields, self.draft.media)
        if body is None:
            name = text_in(record.fields, "subtype") or kind
            self.draft.add(record, ImportedRecord(FORMAT, name), parent)
            return parent
        node = self.draft.add(record, body, parent)
        self.leaf.follow(record, node)
        return node


parse = whole_parser(FORMAT, Reader)


def _body_of(kind: str, fields: Fields, media: Media) -> ItemBody | None:
    message = object_in(fields, "message") or {}
    parts = parts_of(list_in(message, "parts"), media, _part)
    if not parts:
        return None
    results = tuple(part for part in parts if isinstance(part, ToolResultPart))
    said = tuple(part for part in parts if not isinstance(part, ToolResultPart))
    if results and kind in ("tool_result", "user"):
        return Message("tool", results)
    if kind == "user":
        return Message("user", said)
    if kind != "assistant":
        return None
    model, usage = name_in(fields, "model"), _usage(object_in(fields, "usageMetadata") or {})
    return answer_of(said, provider=PROVIDER, model=model, usage=usage)


def _part(fields: Fields, media: Media) -> Part | None:
    call = object_in(fields, "functionCall")
    if call is None:
        return part_of(fields, media)
    return call_of(name_in(call, "id"), name_in(call, "name"), object_in(call, "args"))


def _usage(counted: Fields) -> Usage:
    """Convert the token counts of a call to `Usage`.

    Qwen Code counts cached tokens as input, and excludes thoughts from output.
    """
    cached = count_in(counted, "cachedContentTokenCount")
    return Usage(
        input_tokens=max(0, count_in(counted, "promptTokenCount") - cached),
        output_tokens=count_in(counted, "candidatesTokenCount")
        + count_in(counted, "thoughtsTokenCount"),
        cache_read_tokens=cached,
    )
