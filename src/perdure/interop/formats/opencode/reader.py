"""Read the output of `opencode export`: one JSON document with a session and its messages.

Each export rewrites the document, so messages that were imported before are matched by their ids.
The messages form one chain. A line of the document counts as part of the header if no message
begins on this line.
Source: anomalyco/opencode of spring 2026 (1.x), ``cli/cmd/export.ts`` and
``session/message-v2.ts``. The exports of 2.x have another form and are not read.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from perdure.codecs.fields import Fields, fields_of, flag_in, list_in, name_in, object_in, time_in
from perdure.codecs.lines import Line, lines_of, pieces_at, read_line
from perdure.interop.formats.handover import Handover, handover_in
from perdure.interop.formats.items import ItemBody, ParsedSource, SourceHeader
from perdure.interop.formats.opencode.ids import is_id_of
from perdure.interop.formats.opencode.messages import (
    said_by_person,
    steps_of,
    subagents_of,
    summary_in,
)
from perdure.interop.formats.sources.content import Held
from perdure.interop.formats.sources.parse_state import Progress, Record, SourceDraft
from perdure.session.kinds import Compaction, Custom
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord

FORMAT: Final = "opencode"
_BEGINNING = re.compile(rb'\s*\{\s*"info"\s*:\s*\{')

_METADATA = ("version", "projectID", "slug")


class _Document(msgspec.Struct):
    info: msgspec.Raw
    messages: list[msgspec.Raw]


_document = msgspec.json.Decoder(_Document)


def parse(content: bytes, progress: Progress | None = None) -> ParsedSource:
    """Parse the export in `content`; if it is invalid or truncated, return only malformed lines."""
    reader = _Reader(content)
    try:
        document = _document.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reader.refuse(str(error))
        return reader.draft.finish(SourceHeader(), None)
    reader.take(document)
    if progress is not None:
        progress(len(content), len(content))
    return reader.finish()


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.draft = SourceDraft(FORMAT, Held(content))
        self._content = content
        self._info: Fields = {}
        self._leaf: int | None = None
        self._own: dict[str, int] = {}  # message -> the first item made of it
        self._mark: Handover | None = None
        self._tail: str | None = None  # the first message that the newest compaction keeps
        self.draft.count_lines()

    def refuse(self, reason: str) -> None:
        """Report every line of the document as malformed, with `reason`."""
        for line in lines_of(self._content):
            if not line.is_blank:
                self.draft.report_malformed(line, f"it is not an export of opencode ({reason})")

    def take(self, document: _Document) -> None:
        """Read the whole document."""
        places = pieces_at(self._content, [document.info, *document.messages])
        info = next(places)
        self._info = _fields_in(info)
        self._take_info(info)
        for line in places:
            self._take_message(line)

    def _take_info(self, line: Line) -> None:
        record = Record(line, self._info, at=_created_at(self._info))
        self.draft.add_title(record, name_in(self._info, "title"))

    def _take_message(self, line: Line) -> None:
        fields = _fields_in(line)
        info, parts = object_in(fields, "info") or {}, list_in(fields, "parts")
        record = Record(line, fields, name_in(info, "id"), at=_created_at(info))
        self._note_handover(line, info, parts or [])
        if parts is None or name_in(info, "role") not in ("user", "assistant"):
            self.draft.report_malformed(line, "a message of it has no role or no parts")
            self._add(record, [Custom("opencode:message", fields)])
        elif info["role"] == "user":
            self._take_said(record, parts)
        elif flag_in(info, "summary"):
            self._take_summary(record, parts)
        else:
            self._add(record, steps_of(info, parts, self.draft.media), subagents_of(parts))

    def _note_handover(self, line: Line, info: Fields, parts: list[object]) -> None:
        """Remember the handover mark in `parts`, and the `line` of the message that has it."""
        at = _created_at(info)
        for part in map(fields_of, parts) if self._mark is None else ():
            self._mark = self._mark or handover_in(object_in(part or {}, "metadata") or {})
        if self._mark is None or at is None:
            return
        if is_id_of(name_in(info, "id") or "", "msg", at, str(self._mark.id)):
            self._mark = msgspec.structs.replace(self._mark, lines=line.number)

    def _handover(self) -> Handover | None:
        """Return the handover mark; None if the mark belongs to another session."""
        mark, at = self._mark, _created_at(self._info)
        own = name_in(self._info, "id") or ""
        is_own = mark is not None and at is not None and is_id_of(own, "ses", at, str(mark.id))
        return mark if is_own else None

    def _take_said(self, record: Record, parts: list[object]) -> None:
        for part in map(fields_of, parts):
            if part is not None and part.get("type") == "compaction":
                self._tail = name_in(part, "tail_start_id")
        said = said_by_person(parts, self.draft.media)
        if said is None:
            self.draft.add(record, ImportedRecord(FORMAT, "message"), self._leaf)
        else:
            self._add(record, [said])

    def _take_summary(self, record: Record, parts: list[object]) -> None:
        kept = None if self._tail is None else self._own.get(self._tail)
        body = Compaction(summary_in(parts), reason="import")
        self._leaf = self.draft.add(record, body, self._leaf, {"first_kept": kept})

    def _add(self, record: Record, bodies: list[Any], meta: Fields | None = None) -> None:
        body: ItemBody
        for ordinal, body in enumerate(bodies):
            is_result = isinstance(body, Message) and body.role == "tool"
            own = meta if is_result else None
            self._leaf = self.draft.add(record, body, self._leaf, ordinal=ordinal, meta=own)
            if ordinal == 0 and record.id is not None:
                self._own[record.id] = self._leaf

    def finish(self) -> ParsedSource:
        """Return the parsed source."""
        info = self._info
        self.draft.count_header_lines()
        parent = name_in(info, "parentID")
        described = SourceHeader(
            session=name_in(info, "id"),
            created_at=_created_at(info),
            cwd=name_in(info, "directory"),
            metadata={name: info[name] for name in _METADATA if info.get(name) is not None},
            parent=parent,
            is_subagent=parent is not None,
            is_saved_whole=True,
            handover=self._handover(),
        )
        return self.draft.finish(described, self._leaf)


def _fields_in(line: Line) -> Fields:
    return fields_of(read_line(line.content).value) or {}


def _created_at(info: Fields) -> int | None:
    return time_in(object_in(info, "time") or {}, "created")


def is_beginning(start: bytes) -> bool:
    """Return whether `start` is the beginning of an export of opencode."""
    return _BEGINNING.match(start) is not None
