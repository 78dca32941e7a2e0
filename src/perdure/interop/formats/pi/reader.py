"""Read pi session files of version 1, 2 and 3 (and additions of newer pi).

pi stores everything in one tree. In perdure, labels and names are side entries. If a label or name
has children, its nearest ancestor in the conversation becomes the parent of these children. The
tree of messages is the same as in pi. A version 1 file has no ids, so each record is the child of
the record before it. Fields unknown to perdure remain only in the stored copy of the imported file.
"""

from __future__ import annotations

import re
from array import array
from itertools import repeat

from perdure.codecs.fields import Fields, name_in, number_in, object_in, text_in, time_in
from perdure.codecs.lines import Line
from perdure.codecs.media import Media
from perdure.codecs.pi.bodies import said_by
from perdure.codecs.pi.messages import message_of, nested_usage
from perdure.codecs.pi.words import FORMAT, VERSION
from perdure.interop.formats.items import SourceHeader
from perdure.interop.formats.sources.parent_links import Linker, MessageFields
from perdure.interop.formats.sources.parse_state import Record, SourceDraft
from perdure.interop.formats.sources.reader import LineReader, has_type, whole_parser
from perdure.session.notes import SideBody

_BROKEN = re.compile(
    rb'\{"type":"(?!session")[a-z_]+","id":"([\w.-]+)","parentId":(?:null|"([\w.-]+)")[,}]'
)
_METADATA = ("version", "parentSession", "branchedFrom", "provider", "modelId", "thinkingLevel")

_RECORD_TYPES = frozenset(
    {
        *("message", "thinking_level_change", "model_change", "compaction", "branch_summary"),
        *("label", "session_info", "custom", "custom_message"),
    }
)


class Reader(LineReader):
    """Reads a pi session and adds its items to `draft`."""

    foreign = "it is not a record of a pi session"
    accepts = staticmethod(has_type)

    def __init__(self, draft: SourceDraft) -> None:
        super().__init__(draft)
        self.links = self.linker = Linker(draft, self._place)
        # Line and id of every record by the index of version 1, which counts the header.
        self.indexed = array("q")
        self.ids: list[str | None] = []
        self.own = array("q")  # by line number: its item in the tree, or -1

    def take_broken(self, line: Line, problem: str) -> None:
        """Read a line that is not JSON."""
        ids = _BROKEN.match(line.content) if line.is_ended else None
        self.draft.report_malformed(line, problem)
        self.links.link_broken(line, ids, self.leaf.node)

    def take_record(self, record: Record) -> None:
        """Read one record."""
        line, fields = record.line, record.fields
        if fields["type"] == "session" and self.header is None:
            self.header = SourceHeader(
                session=name_in(fields, "id"),
                created_at=time_in(fields, "timestamp"),
                cwd=name_in(fields, "cwd"),
                metadata={name: fields[name] for name in _METADATA if fields.get(name) is not None},
            )
            self.draft.check_version(line, number_in(fields, "version"), VERSION)
            self.draft.header_lines.append(line.number)
            self._index(line.number, None)
        else:
            self._link(record)

    def take_plain(self, fields: Fields, number: int, offset: int, length: int) -> bool:
        """Fast path: add a message whose parent was read before; return False for other records."""
        node = self.links.add_message(fields, "parentId", (number, offset, length), _read_message)
        if node is None:
            return False
        self._index(number, name_in(fields, "id"))
        self._own_at(number, node)
        self.leaf.follow_line(number, node)
        return True

    def _link(self, record: Record) -> None:
        number, fields = record.line.number, record.fields
        record.id, record.parent = name_in(fields, "id"), name_in(fields, "parentId")
        record.at = _time_of(fields, object_in(fields, "message") or {})
        self._index(number, record.id)
        if fields["type"] == "session":
            record.id = None
            self.draft.warn("header", f"line {number}: a second header, stored without effect")
        self.links.link(record, self.leaf.node)

    def _index(self, number: int, id: str | None) -> None:
        self.indexed.append(number)
        self.ids.append(id)

    # -- placing

    def _place(self, record: Record, parent: int | None) -> int | None:
        node = self._item(record, parent)
        self.leaf.follow(record, node)
        return node

    def _item(self, record: Record, parent: int | None) -> int | None:
        if not record.fields:
            node = self.draft.add(record, record.line.content, parent)
            self._own_at(record.line.number, node)
            return node
        said = said_by(record.fields, self.draft.media)
        node = self.links.item(
            record, said, parent, lambda name, id: self._find_referred(name, id, record, parent)
        )
        if not isinstance(said.body, SideBody) and node is not None:
            self._own_at(record.line.number, node)
        return node

    def _own_at(self, number: int, own: int) -> None:
        missing = number - len(self.own)
        if missing:
            self.own.extend(repeat(-1, missing + 1))
            self.own[number] = own
        else:
            self.own.append(own)

    def _find_referred(self, name: str, id: str, record: Record, parent: int | None) -> int | None:
        if name != "first_kept":
            return self.links.nodes.get(id)
        number, kept = self._kept_record(record)
        if 0 < number < len(self.own) and self.own[number] >= 0:
            return self.own[number]
        node = self.links.nodes.get(kept) if kept else None
        if node is not None and self.draft.items[node].alias == kept:
            return node
        # It may name a label: then the part after the label's nearest ancestor is kept.
        is_known = kept is not None and kept in self.links.nodes
        return self.draft.next_below(node, parent) if is_known else None

    def _kept_record(self, record: Record) -> tuple[int, str | None]:
        """Return the line number and id of the first record that a compaction keeps.

        The line number is 0 if the compaction gives only the id.
        """
        index = number_in(record.fields, "firstKeptEntryIndex")
        if index is not None and 0 <= index < len(self.indexed):
            return self.indexed[int(index)], self.ids[int(index)]
        return 0, name_in(record.fields, "firstKeptEntryId")


parse = whole_parser(FORMAT, Reader)


def _read_message(fields: Fields, message: Fields, media: Media) -> MessageFields:
    return message_of(message, media), _time_of(fields, message), nested_usage(message)


def _time_of(fields: Fields, message: Fields) -> int | None:
    return time_in(fields, "timestamp") or time_in(message, "timestamp")


def is_record(fields: Fields) -> bool:
    """Return whether `fields` is a pi record.

    Operator's records look similar, but have snake-case keys and numeric times.
    """
    kind = name_in(fields, "type")
    if text_in(fields, "timestamp") is None or "parent_id" in fields:
        return False
    if kind == "session":
        return name_in(fields, "id") is not None
    if kind == "message" and "message" not in fields:
        return False
    return kind in _RECORD_TYPES and "sessionId" not in fields and "uuid" not in fields
