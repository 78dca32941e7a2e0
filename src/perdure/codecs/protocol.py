"""The contract of a codec: it converts entries to the records of another program's files, and back.

A codec writes the records that the other program would have written for an entry. If the other
program has no record type for an entry, a ``custom`` record contains the body of the entry. The
other programs preserve ``custom`` records and never show them to a model. A codec does not depend
on files or stores; its callers insert the records into a file.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping

import msgspec

from perdure.codecs.fields import Fields, fields_of, name_in, text_in
from perdure.codecs.media import Media
from perdure.codecs.shared_keys import OURS
from perdure.codecs.style import LINE_ENDS
from perdure.session.codec import Body, stands_in_a_line
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import OPAQUE, Custom, TreeBody
from perdure.session.media_storage.embedded_base64 import restore_args, restored_text
from perdure.session.messages import MediaPart, Message, ToolCallPart, ToolResultPart
from perdure.session.notes import ImportedRecord, SideBody


class Said(msgspec.Struct, frozen=True):
    """The content of a record. `about` and the values of `references` are ids of records.

    `references` contains the fields of the body that refer to an entry; in `body` itself, these
    fields are None. `meta` is the metadata that the source program added to the message in the
    record. If only the raw record is stored, `unknown` or `malformed` contains the reason.
    """

    body: Message | TreeBody | SideBody
    about: str | None = None
    references: tuple[tuple[str, str], ...] = ()
    meta: Fields | None = None
    unknown: str | None = None
    malformed: str | None = None


class WriteContext(msgspec.Struct, frozen=True):
    """The data and functions that a codec needs to make the records of an entry.

    `own` is the id of the first record of the entry. For another entry, `first` returns the id of
    the entry's first record, and `last` returns the id of the record that the entry's children have
    as their parent. `blob` returns the bytes for a media handle. `model` returns the model that the
    branch uses at an entry. `first`, `last`, `blob` and `model` return None if there is no result.
    `undone` are the ids of the compactions that were undone. `kept_over` are the ids of the
    compactions that a later compaction keeps in the context.
    """

    own: str
    first: Callable[[EntryId], str | None]
    last: Callable[[EntryId], str | None]
    blob: Callable[[str], bytes | None]
    model: Callable[[EntryId], str | None]
    undone: frozenset[EntryId] = frozenset()
    kept_over: frozenset[EntryId] = frozenset()

    def target(self, note: Entry) -> str | None:
        """Return the record id of the entry that `note` refers to; None if there is none."""
        return None if note.about is None else self.last(note.about)


class Codec(msgspec.Struct, frozen=True):
    """The file format in which another program writes a session.

    `name` is the name of the format in addresses and exports. `is_escaped` is True if the
    characters `LINE_ENDS` are escaped, because the program ends lines at these characters, too.
    `has_leaf_record` is True if the program has a record that moves the leaf; otherwise the program
    continues from the last record. `oldest_version` is the oldest file version that the program
    does not rewrite; nothing is appended to older files. `most_header_bytes` is the maximum length
    of a file's first line; the program skips files with a longer first line. `file_name` returns
    the name of a session's file from its time and id. `header` returns the first record, made from
    id, time, working directory and the file of the parent. `records` returns the records for an
    entry, at least one, in the order of the file. `title` returns the record that names the
    session. `custom` returns a record with the given type and data, which is never part of a
    context. `placed` returns a record with its id, parent and time inserted in the program's own
    order. `line` returns a record as a line without its line end, with the program's spelling of
    numbers. `time_of` returns the time of a record in Unix milliseconds. `said` returns the content
    of a record; the media of the record are added to `Media`.
    """

    name: str
    is_escaped: bool
    has_leaf_record: bool
    oldest_version: int
    most_header_bytes: int | None
    file_name: Callable[[int, str], str]
    header: Callable[[str, int, str | None, str | None], Fields]
    records: Callable[[Entry, Body, WriteContext], list[Fields]]
    title: Callable[[str], Fields]
    custom: Callable[[str, object], Fields]
    placed: Callable[[Mapping[str, object], str, str | None, int], Fields]
    line: Callable[[Fields], bytes]
    time_of: Callable[[float | str | None], int | None]
    said: Callable[[Fields, Media], Said]


# ---------------------------------------------------------------- bodies without a record


def carried_fields(entry: Entry, *, is_escaped: bool) -> Fields:
    """Return the data of a ``custom`` record that contains `entry`."""
    data: Fields = {"lane": entry.lane}
    if entry.about is not None:
        data["about"] = entry.about
    if entry.kind != OPAQUE and stands_as_json(entry.body, is_escaped=is_escaped):
        return {**data, "body": msgspec.Raw(entry.body)}
    return {**data, "base64": b64encode(entry.body).decode()}


def stands_as_json(body: bytes, *, is_escaped: bool) -> bool:
    """Return whether `body` can be part of a line as JSON and be read back unchanged."""
    has_line_end = is_escaped and any(each.encode() in body for each in LINE_ENDS)
    return not has_line_end and stands_in_a_line(body)


class _Data(msgspec.Struct):
    body: msgspec.Raw = msgspec.Raw()
    base64: str = ""


class _Carrier(msgspec.Struct):
    data: _Data


_carrier = msgspec.json.Decoder(_Carrier)


def carried_body(line: bytes) -> bytes:
    """Return the body of the entry that the record `line` contains; empty if there is none."""
    try:
        data = _carrier.decode(line).data
        return bytes(data.body) or b64decode(data.base64, validate=True)
    except ValueError:
        return b""


def custom_body(format: str, custom_type: str, data: object) -> Custom | ImportedRecord:
    """Return the body of a ``custom`` record.

    A record that perdure wrote becomes a side entry, unless its data has the lane ``tree``.
    """
    lane = (fields_of(data) or {}).get("lane")
    if custom_type.startswith(OURS) and lane != "tree":
        return ImportedRecord(format, custom_type)
    return Custom(custom_type, data)


# ---------------------------------------------------------------- common to both programs


def base64_of(part: MediaPart, writing: WriteContext) -> str | None:
    """Return the content of `part` as base64; None if the content is not available."""
    content = writing.blob(part.handle)
    return None if content is None else b64encode(content).decode()


def whole_args(part: ToolCallPart, writing: WriteContext) -> dict[str, object]:
    """Return the arguments that the tool received with the call `part`; bytes are base64 text."""
    return restore_args(part.args, _kept_contents(part.contents, writing))


def whole_text(part: ToolResultPart, writing: WriteContext) -> str:
    """Return the text that the tool returned in the result `part`; bytes are base64 text."""
    return restored_text(part.text, _kept_contents(part.contents, writing))


def _kept_contents(handles: tuple[str, ...], writing: WriteContext) -> dict[str, bytes]:
    found = ((handle, writing.blob(handle)) for handle in handles)
    return {handle: content for handle, content in found if content is not None}


def reference(name: str, fields: Fields, key: str) -> tuple[tuple[str, str], ...]:
    """Return a tuple with one pair of `name` and the record id at `key`; () if there is no id."""
    target = name_in(fields, key)
    return () if target is None else ((name, target),)


def unknown_record(format: str, fields: Fields, envelope: Collection[str]) -> Said:
    """Return an unknown record as a custom entry, without the fields in `envelope`."""
    kind = text_in(fields, "type") or "record"
    data = {key: value for key, value in fields.items() if key not in envelope}
    return Said(Custom(f"{format}:{kind}", data), unknown=f"{kind!r} is stored without effect")


def unreadable_message(format: str, message: object, role: str | None, *, is_known: bool) -> Said:
    """Return a custom entry for a message that has no role, no content or an unknown role."""
    body = Custom(f"{format}:message", message)
    if role is None or is_known:
        return Said(body, malformed="its message has no role or no content")
    return Said(body, unknown=f"the role {role!r} is stored outside the context")
