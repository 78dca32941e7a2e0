"""Read Operator session files in three forms: version 3, the documented form, the legacy form.

As in pi, all records of an Operator file form one tree; its labels and names become side entries in
perdure. A ``leaf`` record moves the leaf (the end of the conversation) and has no children. The
legacy form is a line of metadata and one message per line, in order. Lines of the legacy form have
no ids. A line of the legacy form is identified by its content, because each save rewrites the whole
file. Fields unknown to perdure remain only in the stored copy of the imported file.
"""

from __future__ import annotations

import hashlib
import re

from perdure.codecs.fields import (
    Fields,
    name_in,
    number_in,
    object_in,
    seconds_in,
    time_in,
)
from perdure.codecs.lines import Line
from perdure.codecs.media import Media
from perdure.codecs.operator.bodies import said_by
from perdure.codecs.operator.messages import message_of, meta_of
from perdure.codecs.operator.words import FORMAT, HEADERS, VERSION
from perdure.interop.formats.items import SourceHeader
from perdure.interop.formats.sources.parent_links import Linker, MessageFields
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, whole_parser
from perdure.session.notes import ImportedRecord, LeafMoved

LEGACY_HEADER = "metadata"
HEADER_TYPES = frozenset({*HEADERS, LEGACY_HEADER})

_BROKEN = re.compile(
    rb'\{(?:"type":"[a-z_]+",)?"id":"([\w.-]+)"(?:,"timestamp":[\d.e+-]+)?'
    rb'(?:,"parent_id":(?:null|"([\w.-]+)"))?[,}]'
)
_METADATA = ("version", "parent_session", "metadata")

_RECORD_TYPES = frozenset(
    {
        *("session", "message", "thinking_level_change", "model_change", "compaction"),
        *("branch_summary", "label", "session_info", "custom", "custom_message", "leaf", "channel"),
    }
)


class Reader(LineReader):
    """Reads an Operator session and adds its items to `draft`."""

    foreign = "it is not a record of an Operator session"

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self.links = self.linker = Linker(draft, self._place)
        self._is_legacy = False
        self._digests: dict[str, int] = {}

    def take_broken(self, line: Line, problem: str) -> None:
        """Read a line that is not JSON."""
        has_ids = line.is_ended and not self._is_legacy
        ids = _BROKEN.match(line.content) if has_ids else None
        self.draft.report_malformed(line, problem)
        self.links.link_broken(line, ids, self.leaf.node)

    @staticmethod
    def accepts(fields: Fields) -> bool:
        """Return whether the record has a type, or is a message of the legacy form."""
        return name_in(fields, "type") is not None or "role" in fields

    def take_record(self, record: Record) -> None:
        """Read one record."""
        line, fields = record.line, record.fields
        kind = name_in(fields, "type")
        if kind in HEADER_TYPES and self.header is None:
            self._is_legacy = kind == LEGACY_HEADER
            self.header = SourceHeader(
                session=name_in(fields, "id"),
                created_at=seconds_in(fields, "timestamp") or time_in(fields, "created_at"),
                cwd=name_in(fields, "cwd"),
                metadata={name: fields[name] for name in _METADATA if fields.get(name) is not None},
                is_saved_whole=self._is_legacy,
            )
            self.draft.header_lines.append(line.number)
            self.draft.check_version(line, number_in(fields, "version"), VERSION)
        elif kind is None:
            self._take_legacy(line, fields)
        else:
            self._link(record, kind)

    def take_plain(self, fields: Fields, number: int, offset: int, length: int) -> bool:
        """Fast path: add a message whose parent was read before; return False for other records."""
        node = self.links.add_message(fields, "parent_id", (number, offset, length), _read_message)
        if node is None:
            return False
        self.leaf.follow_line(number, node)
        return True

    def _link(self, record: Record, kind: str) -> None:
        number, fields = record.line.number, record.fields
        record.id, record.parent = name_in(fields, "id"), name_in(fields, "parent_id")
        record.at = _time_of(fields, object_in(fields, "message") or {})
        if kind in HEADER_TYPES:
            record.id = None
            self.draft.warn("header", f"line {number}: a second header, stored without effect")
        self.links.link(record, self.leaf.node)

    def _take_legacy(self, line: Line, message: Fields) -> None:
        fields: Fields = {"type": "message", "message": message, "meta": message.get("meta")}
        record = Record(line, fields, name_in(message, "id") or self._name_line(line))
        record.at = seconds_in(message, "timestamp")
        self.links.add_below(record, self.leaf.node)

    def _name_line(self, line: Line) -> str:
        digest = hashlib.sha256(line.content).hexdigest()[:24]
        number = self._digests[digest] = self._digests.get(digest, 0) + 1
        return f"line-{digest}-{number}"

    # -- placing

    def _place(self, record: Record, parent: int | None) -> int | None:
        kind = record.fields.get("type")
        if kind == "leaf":
            self.leaf.follow(record, _leaf(self, record, parent))
            return parent
        node = self._item(record, kind, parent)
        self.leaf.follow(record, node)
        return node

    def _item(self, record: Record, kind: str | None, parent: int | None) -> int | None:
        if kind is None:
            return self.draft.add(record, record.line.content, parent)
        said = said_by(record.fields, self.draft.media)
        return self.links.item(
            record, said, parent, lambda name, id: self._find_referred(name, id, parent)
        )

    def _find_referred(self, name: str, id: str, parent: int | None) -> int | None:
        node = self.links.nodes.get(id)
        if name != "first_kept" or id not in self.links.nodes:
            return node
        if node is not None and self.draft.items[node].alias == id:
            return node
        return self.draft.next_below(node, parent)  # it names a label: keep what follows it


parse = whole_parser(FORMAT, Reader)


def _read_message(fields: Fields, message: Fields, media: Media) -> MessageFields:
    return message_of(message, media), _time_of(fields, message), meta_of(fields)


def _time_of(fields: Fields, message: Fields) -> int | None:
    at = seconds_in(fields, "timestamp")
    return seconds_in(message, "timestamp") if at is None else at


def _leaf(reader: Reader, record: Record, parent: int | None) -> int | None:
    """Return the item to which the ``leaf`` record `record` moves the leaf."""
    target = name_in(record.fields, "target_id")
    if target is not None and target not in reader.links.nodes:
        text = f"line {record.line.number}: the leaf it moves to is not here; it stays"
        reader.draft.warn("leaf", text)
        reader.draft.add(record, ImportedRecord(FORMAT, "leaf"), parent)
        return reader.leaf.node
    node = None if target is None else reader.links.nodes[target]
    reader.draft.add(record, LeafMoved(None), parent, {"target": node})
    return node


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a record of Operator, including its first versions."""
    kind = name_in(fields, "type")
    if kind == LEGACY_HEADER:
        return name_in(fields, "id") is not None and "created_at" in fields
    if kind is None:  # legacy: its lines are bare messages
        return name_in(fields, "role") is not None and "contents" in fields
    if kind == "session_header":
        return name_in(fields, "id") is not None
    if kind == "message" and object_in(fields, "message") is None:
        return False
    is_snake = "parent_id" in fields or number_in(fields, "timestamp") is not None
    return is_snake and name_in(fields, "id") is not None and kind in _RECORD_TYPES
