"""pi session files of version 1, 2 and 3 (and what newer pi adds), read.

pi keeps everything in one tree. Here labels and names are side entries, so what pi hung below one
hangs below its nearest ancestor of the conversation; the tree of messages stays pi's. A version 1
file has no ids: its records follow each other. Fields that perdure has no place for stay in the
import original.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from itertools import repeat

from perdure.codecs.alike import title_in
from perdure.codecs.fields import (
    Fields,
    count_in,
    fields_of,
    flag_in,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
    texts_in,
    time_in,
)
from perdure.codecs.lines import Line, Reading
from perdure.codecs.pi.messages import (
    ROLES,
    custom_message_of,
    message_of,
    model_name,
    nested_usage,
    retained_of,
    usage_of,
)
from perdure.codecs.pi.words import VERSION
from perdure.interop.formats.items import Item, ItemBody, ParsedSource, SourceHeader
from perdure.interop.formats.sources.draft import Progress, Record, SourceDraft
from perdure.interop.formats.sources.linking import Leaf, Linker
from perdure.interop.formats.sources.reading import Make, parsed_whole
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    ModelChange,
    ThinkingChange,
)
from perdure.session.notes import ImportedRecord, Label, LeafMoved

FORMAT = "pi"
LEAF_MARKER = "perdure.leaf"
"""Custom type of the record that an export ends with when its last entry is not the leaf."""

ENVELOPE = ("type", "id", "parentId", "timestamp")
_BROKEN = re.compile(
    rb'\{"type":"(?!session")[a-z_]+","id":"([\w.-]+)","parentId":(?:null|"([\w.-]+)")[,}]'
)
_METADATA = ("version", "parentSession", "branchedFrom", "provider", "modelId", "thinkingLevel")


def parse(content: bytes, progress: Progress | None = None) -> ParsedSource:
    """The pi session in `content`, whatever state it is in."""
    return parsed_whole(content, FORMAT, Reader, progress)


class Reader:
    """Reads a pi session into `draft`."""

    def __init__(self, draft: SourceDraft) -> None:
        self.draft = draft
        self.linker = Linker(self.draft, self._place)
        self._header: Fields | None = None
        # Line and id of every record, by the index that version 1 counts in: the header is one.
        self.indexed = array("q")
        self.ids: list[str | None] = []
        self.own = array("q")  # by line number: its item of the tree, or -1
        self._leaf = Leaf()
        self._has_gap = False

    def take(self, line: Line, reading: Reading) -> None:
        """Read one line."""
        if not reading.is_json:
            self._take_broken(line, reading.problem or "")
            return
        if reading.problem:
            self.draft.warn("mended", f"line {line.number}: {reading.problem}")
        fields = fields_of(reading.value)
        kind = None if fields is None else name_in(fields, "type")
        if fields is None or kind is None:
            self.draft.malformed(line, "it is no record of a pi session")
            self._has_gap = True
        elif kind == "session" and self._header is None:
            self._header = fields
            self.draft.check_version(line, number_in(fields, "version"), VERSION)
            self.draft.header_lines.append(line.number)
            self._index(line.number, None)
        else:
            self._take_record(line, fields)

    def take_plain(self, fields: Fields, number: int, offset: int, length: int) -> bool:
        """Take what nearly all lines are, a message below a record before it; False for others."""
        if fields.get("type") != "message":
            return False
        own, parent, message = (
            fields.get("id"),
            fields.get("parentId"),
            object_in(fields, "message"),
        )
        if type(own) is not str or not own or message is None:
            return False
        linker, draft = self.linker, self.draft
        if not linker.is_plain(own, parent):
            return False
        body = message_of(message, draft.media)
        if body is None:
            return False
        at = time_in(fields, "timestamp") or time_in(message, "timestamp")
        item = Item(body, number, offset, length, 0, linker.below(parent), None, at, own)
        if "usage" in message:
            item.meta = nested_usage(message)
        node = linker.nodes[own] = draft.put(item)
        self.indexed.append(number)
        self.ids.append(own)
        self._own_at(number, node)
        self._leaf.follow_line(number, node)
        self._has_gap = False
        return True

    def _take_broken(self, line: Line, problem: str) -> None:
        self.draft.malformed(line, problem)
        ids = _BROKEN.match(line.content) if line.is_ended else None
        if ids is None:
            self._has_gap = True
            return
        own, parent = (None if name is None else name.decode() for name in ids.groups())
        self._link(Record(line, {}, own, parent))

    def _take_record(self, line: Line, fields: Fields) -> None:
        record = Record(line, fields, name_in(fields, "id"), name_in(fields, "parentId"))
        record.at = time_in(fields, "timestamp") or time_in(
            object_in(fields, "message") or {}, "timestamp"
        )
        self._index(line.number, record.id)
        if fields["type"] == "session":
            record.id = None
            self.draft.warn("header", f"line {line.number}: a second header, kept without effect")
        self._link(record)

    def _index(self, number: int, id: str | None) -> None:
        self.indexed.append(number)
        self.ids.append(id)

    def _link(self, record: Record) -> None:
        self._has_gap = self.linker.link(record, self._leaf.node, has_gap=self._has_gap)

    def place_next(self) -> bool:
        """Place one record that waited for its parent."""
        return self.linker.place_next()

    def close(self) -> None:
        """Let the records go whose parents never came."""
        self.linker.close()

    def instead(self) -> Make | None:
        """Nothing: the records name their parents."""
        return None

    def finished(self) -> ParsedSource:
        """Everything that was read."""
        header = self._header
        if header is None:
            self.draft.warn("header", "it has no header: no session id, no working directory")
            return self.draft.parsed(SourceHeader(), self._leaf.node)
        described = SourceHeader(
            session=name_in(header, "id"),
            created_at=time_in(header, "timestamp"),
            cwd=name_in(header, "cwd"),
            metadata={name: header[name] for name in _METADATA if header.get(name) is not None},
        )
        return self.draft.parsed(described, self._leaf.node)

    # -- placing

    def _place(self, record: Record, parent: int | None) -> int | None:
        node = self._item(record, parent)
        self._leaf.follow(record, node)
        return node

    def _item(self, record: Record, parent: int | None) -> int | None:
        if not record.fields:
            return self._in_tree(record, record.line.content, parent)
        kind = record.fields["type"]
        if kind in _NOTES:
            return _NOTES[kind](self, record, parent)
        if kind == "custom" and text_in(record.fields, "customType") == LEAF_MARKER:
            self.draft.add(record, LeafMoved(None), parent, {"target": parent})
            return parent
        body, references = _BODIES.get(kind, _unknown)(self, record, parent)
        return self._in_tree(record, body, parent, references)

    def _in_tree(
        self,
        record: Record,
        body: ItemBody,
        parent: int | None,
        references: dict[str, int | None] | None = None,
    ) -> int:
        meta = nested_usage(object_in(record.fields, "message") or {})
        own = self.draft.add(record, body, parent, references, meta=meta)
        self._own_at(record.line.number, own)
        return own

    def _own_at(self, number: int, own: int) -> None:
        missing = number - len(self.own)
        if missing:
            self.own.extend(repeat(-1, missing + 1))
            self.own[number] = own
        else:
            self.own.append(own)


_Placed = tuple[ItemBody, dict[str, int | None] | None]

# -- bodies of the tree


def _message(reader: Reader, record: Record, _parent: int | None) -> _Placed:
    message = object_in(record.fields, "message") or {}
    body = message_of(message, reader.draft.media)
    if body is not None:
        return body, None
    role = name_in(message, "role")
    if role is None or role in ROLES:
        reader.draft.malformed(record.line, "its message has no role or no content")
    else:
        text = f"line {record.line.number}: the role {role!r} is kept outside the context"
        reader.draft.warn("unknown", text)
    return Custom("pi:message", record.fields.get("message")), None


def _thinking(reader: Reader, record: Record, _parent: int | None) -> _Placed:
    return ThinkingChange(text_in(record.fields, "thinkingLevel") or "off"), None


def _model(reader: Reader, record: Record, parent: int | None) -> _Placed:
    fields = record.fields
    model = model_name(name_in(fields, "provider"), name_in(fields, "modelId"))
    return (ModelChange(model), None) if model else _unknown(reader, record, parent)


def _compaction(reader: Reader, record: Record, parent: int | None) -> _Placed:
    fields = record.fields
    files = object_in(fields, "details") or {}
    tail = list_in(fields, "retainedTail")
    body = Compaction(
        summary=text_in(fields, "summary") or "",
        tokens_before=count_in(fields, "tokensBefore") or None,
        reason="hook" if flag_in(fields, "fromHook") else "import",
        read_files=texts_in(files, "readFiles"),
        modified_files=texts_in(files, "modifiedFiles"),
        usage=usage_of(object_in(fields, "usage")),
        retained=None if tail is None else retained_of(tail, reader.draft.media),
    )
    return body, {"first_kept": _first_kept(reader, record, parent)}


def _branch_summary(reader: Reader, record: Record, _parent: int | None) -> _Placed:
    fields = record.fields
    files = object_in(fields, "details") or {}
    body = BranchSummary(
        summary=text_in(fields, "summary") or "",
        read_files=texts_in(files, "readFiles"),
        modified_files=texts_in(files, "modifiedFiles"),
        usage=usage_of(object_in(fields, "usage")),
    )
    return body, {"from_id": reader.linker.nodes.get(text_in(fields, "fromId") or "")}


def _custom(reader: Reader, record: Record, _parent: int | None) -> _Placed:
    fields = record.fields
    return Custom(name_in(fields, "customType") or "pi:custom", fields.get("data")), None


def _custom_message(reader: Reader, record: Record, _parent: int | None) -> _Placed:
    body = custom_message_of(record.fields, reader.draft.media)
    if body is None:
        reader.draft.malformed(record.line, "its message has no content")
        return Custom("pi:message", record.fields.get("content")), None
    return body, None


def _unknown(reader: Reader, record: Record, _parent: int | None) -> _Placed:
    fields = record.fields
    kind = fields["type"]
    reader.draft.warn("unknown", f"line {record.line.number}: {kind!r} is kept without effect")
    data = {key: value for key, value in fields.items() if key not in ENVELOPE}
    return Custom(f"pi:{kind}", data), None


# -- notes beside the tree


def _label(reader: Reader, record: Record, parent: int | None) -> int | None:
    target = text_in(record.fields, "targetId") or ""
    node = reader.linker.nodes.get(target)
    if node is None or reader.draft.items[node].alias != target:
        reader.draft.warn("label", f"line {record.line.number}: its label is of no entry here")
        node = None
    reader.draft.add(record, Label(name_in(record.fields, "label")), node)
    return parent


def _name(reader: Reader, record: Record, parent: int | None) -> int | None:
    reader.draft.add(record, title_in(record.fields), None)
    return parent


def _second_header(reader: Reader, record: Record, parent: int | None) -> int | None:
    reader.draft.add(record, ImportedRecord(FORMAT, "session"), parent)
    return parent


# -- the first entry a compaction keeps


def _first_kept(reader: Reader, record: Record, parent: int | None) -> int | None:
    """Position of the first item of the tree that `record`, below `parent`, keeps."""
    number, kept = _kept_record(reader, record)
    if 0 < number < len(reader.own) and reader.own[number] >= 0:
        return reader.own[number]
    node = reader.linker.nodes.get(kept) if kept else None
    if node is not None and reader.draft.items[node].alias == kept:
        return node
    # It may name a label: then what stands after the label's nearest ancestor is kept.
    is_known = kept is not None and kept in reader.linker.nodes
    return reader.draft.next_below(node, parent) if is_known else None


def _kept_record(reader: Reader, record: Record) -> tuple[int, str | None]:
    """Line number (0 where only the id is told) and id of the first record kept."""
    index = number_in(record.fields, "firstKeptEntryIndex")
    if index is not None and 0 <= index < len(reader.indexed):
        return reader.indexed[int(index)], reader.ids[int(index)]
    return 0, name_in(record.fields, "firstKeptEntryId")


_BODIES: dict[str, Callable[[Reader, Record, int | None], _Placed]] = {
    "message": _message,
    "thinking_level_change": _thinking,
    "model_change": _model,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
    "custom": _custom,
    "custom_message": _custom_message,
}

_NOTES: dict[str, Callable[[Reader, Record, int | None], int | None]] = {
    "label": _label,
    "session_info": _name,
    "session": _second_header,
}
