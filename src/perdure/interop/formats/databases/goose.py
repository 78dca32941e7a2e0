"""Read Goose's sessions: rows of ``sessions.db``, and ``.jsonl`` files of earlier versions.

A session is one chain of messages. After a compaction, Goose hides the older messages from the
model and adds the summary as a message that only the model sees. perdure imports this message as a
compaction. Notifications and requests to confirm a call are stored outside the conversation. The
row of the session becomes the last line, because it changes with every message, and an import
expects that earlier lines do not change.
Source: ``session_manager.rs``, ``legacy.rs`` and ``message.rs`` of block/goose, as of 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from perdure.codecs.content import answer_of, call_of, result_of
from perdure.codecs.fields import (
    Fields,
    fields_of,
    flag_in,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
    time_in,
)
from perdure.codecs.media import Media, unknown_part
from perdure.interop.formats.databases.row_lines import DatabaseFormat, json_in, row_line, table_of
from perdure.interop.formats.items import ItemBody, SourceHeader
from perdure.interop.formats.sources.database import Database
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.kinds import Compaction, CustomMessage
from perdure.session.messages import (
    Message,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)
from perdure.session.notes import ImportedRecord

FORMAT: Final = "goose"

_METADATA = ("session_type", "provider_name", "schedule_id", "parent_session_id", "project_id")
_OUTSIDE = frozenset(
    {"toolConfirmationRequest", "actionRequired", "systemNotification", "conversationCompacted"}
)
"""Types of content that are never sent to a model."""
_SESSION = re.compile(r"\d{8}_\d{1,6}")
_LATEST_SECONDS = 10**11
"""A timestamp above this number is in milliseconds, otherwise in seconds."""


# -- the database


def _ids(database: Database) -> Iterator[str]:
    for row in database.rows("sessions", order="created_at, rowid"):
        if isinstance(id := row["id"], str):
            yield id


def _lines(database: Database, id: str) -> Iterator[bytes]:
    for row in database.rows("messages", "session_id = ?", (id,), "created_timestamp, id"):
        yield row_line(FORMAT, "messages", row)
    for row in database.rows("sessions", "id = ?", (id,)):
        yield row_line(FORMAT, "sessions", row)


DATABASE: Final = DatabaseFormat(
    tables={
        "sessions": ("id", "working_dir", "created_at"),
        "messages": ("id", "session_id", "role", "content_json", "created_timestamp"),
    },
    file_names=("sessions.db",),
    ids=_ids,
    lines=_lines,
)


# -- the lines of one session


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a row of Goose's database, or the header of one of its files."""
    return table_of(fields, FORMAT) is not None or _is_file_header(fields)


def at_path(header: SourceHeader, path: Path) -> SourceHeader:
    """Return `header`; for a file of an earlier version, set the session id from the file name."""
    if header.session is not None or not _SESSION.fullmatch(path.stem):
        return header
    return msgspec.structs.replace(header, session=path.stem)


def _is_file_header(fields: Fields) -> bool:
    return name_in(fields, "working_dir") is not None and (
        "message_count" in fields and "description" in fields
    )


class Reader(LineReader):
    """Reads a session and adds its items to `draft`."""

    foreign = "it is not a record of a session of Goose"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self._has_hidden = False  # the model no longer gets the messages before

    def take_record(self, record: Record) -> None:
        """Read one record."""
        fields = record.fields
        row = object_in(fields, "row") or {}
        match table_of(fields, FORMAT):
            case "sessions":
                self._take_header(record, row)
            case "messages":
                self._take_row(record, row)
            case None if _is_file_header(fields):
                self._take_header(record, fields)
            case None if name_in(fields, "role") is not None:
                record.id, record.at = name_in(fields, "id"), _time(fields, "created")
                visible = object_in(fields, "metadata") or {}
                self._take_message(record, fields, list_in(fields, "content"), visible)
            case None:
                self.draft.report_malformed(record.line, self.foreign)
            case table:
                self.draft.add(record, ImportedRecord(FORMAT, table), self.leaf.node)

    def _take_header(self, record: Record, fields: Fields) -> None:
        self.draft.header_lines.append(record.line.number)
        record.at = time_in(fields, "created_at")
        self.header = self.header or SourceHeader(
            session=name_in(fields, "id"),
            created_at=record.at,
            cwd=name_in(fields, "working_dir"),
            metadata={name: fields[name] for name in _METADATA if fields.get(name) is not None},
            is_subagent=name_in(fields, "session_type") == "sub_agent",
            is_saved_whole=True,  # the row of the session changes with every message
        )
        title = name_in(fields, "name") or name_in(fields, "description")
        self.draft.add_title(record, title)

    def _take_row(self, record: Record, row: Fields) -> None:
        number = row.get("id")
        record.id = name_in(row, "message_id") or (
            f"{name_in(row, 'session_id')}:{number}" if isinstance(number, int) else None
        )
        record.at = _time(row, "created_timestamp")
        content = list_in({"content": json_in(row, "content_json")}, "content")
        self._take_message(record, row, content, fields_of(json_in(row, "metadata_json")) or {})

    def _take_message(
        self, record: Record, fields: Fields, content: list[object] | None, visible: Fields
    ) -> None:
        role = name_in(fields, "role")
        if content is None or role not in ("user", "assistant"):
            self.draft.report_malformed(record.line, "it has no role or no readable content")
            self.draft.add(record, ImportedRecord(FORMAT, "message"), self.leaf.node)
            return
        is_for_people = flag_in(visible, "userVisible", default=True)
        is_for_model = flag_in(visible, "agentVisible", default=True)
        bodies = self._bodies(role, content, is_only_for_model=is_for_model and not is_for_people)
        self._has_hidden = self._has_hidden or (bool(bodies) and not is_for_model)
        self.leaf.node = self.draft.add_chain(record, bodies, self.leaf.node)

    def _bodies(
        self, role: str, content: list[object], *, is_only_for_model: bool
    ) -> list[ItemBody]:
        media = self.draft.media
        pieces = [fields_of(each) or {} for each in content]
        results = [part for each in pieces if (part := _result(each, media)) is not None]
        said = [
            _part(fields, item, media)
            for fields, item in zip(pieces, content, strict=True)
            if text_in(fields, "type") not in _OUTSIDE and not _is_result(fields)
        ]
        bodies: list[ItemBody] = [Message("tool", tuple(results))] if results else []
        if said and is_only_for_model:
            bodies.append(self._summary(said))
        elif said and role == "user":
            bodies.append(Message("user", tuple(said)))
        elif said:
            bodies.append(answer_of(said))
        return bodies

    def _summary(self, said: list[Part]) -> ItemBody:
        """Convert a message that only the model sees.

        If Goose has hidden older messages since the last summary, the message is their summary and
        becomes a compaction.
        """
        text = "\n\n".join(part.text for part in said if isinstance(part, TextPart))
        if self._has_hidden and text:
            self._has_hidden = False
            return Compaction(text, reason="import")
        return CustomMessage("goose:agent-only", tuple(said), is_displayed=False)


parse = whole_parser(FORMAT, Reader)


def _is_result(fields: Fields) -> bool:
    return text_in(fields, "type") == "toolResponse" and name_in(fields, "id") is not None


def _result(fields: Fields, media: Media) -> ToolResultPart | None:
    call_id = name_in(fields, "id")
    if not _is_result(fields) or call_id is None:
        return None
    outcome = object_in(fields, "toolResult") or {}
    error = text_in(outcome, "error")
    if error is not None:
        return ToolResultPart(call_id, error, is_error=True)
    answered = object_in(outcome, "value") or {}
    listed = list_in(outcome, "value") or list_in(answered, "content") or ()
    parts = [_part(fields_of(each) or {}, each, media) for each in listed]
    return result_of(call_id, parts, is_error=flag_in(answered, "isError"), unreadable="")


def _part(fields: Fields, item: object, media: Media) -> Part:
    text = text_in(fields, "text")
    match text_in(fields, "type"):
        case "text" if text is not None:
            return TextPart(text)
        case "thinking" | "reasoning":
            return ThinkingPart(text_in(fields, "thinking") or text or "")
        case "redactedThinking":
            return ThinkingPart("", is_redacted=True)
        case "image":
            picture = media.part(text_in(fields, "data"), name_in(fields, "mimeType"))
            return picture or unknown_part(item)
        case "toolRequest" | "frontendToolRequest":
            return _call(fields) or unknown_part(item)
        case _:
            return unknown_part(item)


def _call(fields: Fields) -> ToolCallPart | None:
    """Return the tool call in `fields`; None for a call without a name.

    Goose writes no name for a call that it could not read.
    """
    value = object_in(object_in(fields, "toolCall") or {}, "value") or {}
    return call_of(name_in(fields, "id"), name_in(value, "name"), object_in(value, "arguments"))


def _time(fields: Fields, key: str) -> int | None:
    number = number_in(fields, key)
    if number is None:
        return time_in(fields, key)
    return time_in({key: number if number > _LATEST_SECONDS else number * 1000}, key)
