"""Change ids or the version in records of a pi file; all other bytes stay the same.

This module changes records as pi's own migration does: a replaced field stays at its place, and new
fields are added at the end. The bytes of all other values, even of numbers, stay the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from perdure.codecs.fields import Fields, fields_of, name_in, number_in, object_in
from perdure.codecs.lines import lines_of, read_line
from perdure.codecs.pi.words import VERSION
from perdure.session.codec import encode

_OLD_ROLE, _NEW_ROLE = b'"hookMessage"', "custom"

_raw_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def needs_migration(content: bytes) -> bool:
    """Return whether the file `content` must be migrated before records of version 3 are added."""
    return version_of(content) != VERSION


def version_of(content: bytes) -> float:
    """Return the version in the header of the file `content`; 1 if the header has no version."""
    for line in lines_of(content):
        fields = fields_of(read_line(line.content).value)
        if fields is not None and fields.get("type") == "session":
            return number_in(fields, "version") or 1
    return 1


def migrate(content: bytes, ids: Mapping[int, str]) -> bytes:
    """Convert the file `content` to version 3.

    `ids` maps the offset of a record without an id to its new id.
    """
    migration = _Migration(ids)
    lines = [migration.line(line.offset, line.content) for line in lines_of(content)]
    return b"\n".join(lines) + (b"\n" if content.endswith(b"\n") else b"")


def replace_keys(line: bytes, changes: Mapping[str, object], removed: str | None = None) -> bytes:
    """Return the record `line` with these `changes` of top-level keys, and without `removed`."""
    try:
        fields = _raw_object.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _splice(line, changes)
    for key, value in changes.items():
        fields[key] = msgspec.Raw(encode(value))
    if removed is not None:
        fields.pop(removed, None)
    _rename_role(fields)
    return encode(fields)


def _rename_role(fields: dict[str, msgspec.Raw]) -> None:
    """Change the role of hook messages to the role `custom` of version 3."""
    message = bytes(fields.get("message", b""))
    if _OLD_ROLE not in message:
        return
    inner = _raw_object.decode(message)
    if bytes(inner.get("role", b"")) == _OLD_ROLE:
        inner["role"] = msgspec.Raw(encode(_NEW_ROLE))
        fields["message"] = msgspec.Raw(encode(inner))


def _splice(line: bytes, changes: Mapping[str, object]) -> bytes:
    """Insert `changes` before the last brace of `line`.

    The insertion works even if only a lenient parser accepts `line`.
    """
    end = line.rfind(b"}")
    return line[:end] + b"," + encode(dict(changes))[1:-1] + line[end:]


class _Migration:
    def __init__(self, ids: Mapping[int, str]) -> None:
        self._ids = ids
        self._by_index: list[str | None] = []
        self._last: str | None = None
        self._has_header = False

    def line(self, offset: int, content: bytes) -> bytes:
        """Convert one line to version 3; lines that are not records stay unchanged."""
        fields = fields_of(read_line(content).value)
        if fields is None or name_in(fields, "type") is None:
            return content
        if fields["type"] == "session" and not self._has_header:
            self._has_header = True
            self._by_index.append(None)
            return replace_keys(content, {"version": VERSION})
        return self._record(offset, content, fields)

    def _record(self, offset: int, content: bytes, fields: Fields) -> bytes:
        changes: dict[str, object] = {}
        own = name_in(fields, "id")
        if own is None:
            own = self._ids[offset]
            changes = {"id": own, "parentId": self._last}
        index = number_in(fields, "firstKeptEntryIndex")
        if index is not None and 0 <= index < len(self._by_index):
            changes["firstKeptEntryId"] = self._by_index[int(index)]
        self._by_index.append(own)
        self._last = own
        if not changes and (object_in(fields, "message") or {}).get("role") != "hookMessage":
            return content
        return replace_keys(content, changes, None if index is None else "firstKeptEntryIndex")
