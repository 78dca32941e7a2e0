"""Decode the records of a pi file of version 1, 2 or 3, including files of newer releases of pi."""

from __future__ import annotations

from perdure.codecs.fields import Fields, list_in, name_in, number_in, object_in
from perdure.codecs.ids import record_id
from perdure.codecs.media import Media
from perdure.codecs.pi.messages import (
    ROLES,
    content_of,
    message_of,
    nested_usage,
    retained_of,
    usage_of,
)
from perdure.codecs.pi.words import FORMAT, LEAF_MARKER
from perdure.codecs.protocol import Said, reference, unreadable_message
from perdure.codecs.shared_keys import OURS
from perdure.codecs.shared_records import Keys, Reader, SharedRecords
from perdure.session.notes import ImportedRecord, LeafMoved

_SHARED = SharedRecords(
    FORMAT,
    Keys(
        envelope=("type", "id", "parentId", "timestamp", "perdure"),
        custom_type="customType",
        target="targetId",
        provider="provider",
        model="modelId",
        thinking_level="thinkingLevel",
        tokens_before="tokensBefore",
        first_kept="firstKeptEntryId",
        from_hook="fromHook",
        from_id="fromId",
        read_files="readFiles",
        modified_files="modifiedFiles",
    ),
    usage_of,
    {f"{OURS}context": "context", f"{OURS}system": "system"},
)


def said_by(fields: Fields, media: Media) -> Said:
    """Return the content of the record `fields`; an unknown record becomes a custom entry."""
    return _SHARED.said_by(_READERS, fields, media)


def _message(fields: Fields, media: Media) -> Said:
    message = object_in(fields, "message") or {}
    body = message_of(message, media)
    if body is not None:
        return Said(body, meta=nested_usage(message))
    role = name_in(message, "role")
    return unreadable_message(FORMAT, fields.get("message"), role, is_known=role in ROLES)


def _compaction(fields: Fields, media: Media) -> Said:
    tail = list_in(fields, "retainedTail")
    said = _SHARED.compaction(fields, None if tail is None else retained_of(tail, media))
    index = number_in(fields, "firstKeptEntryIndex")  # version 1 has no ids
    if index is not None and not said.references:
        return Said(said.body, references=(("first_kept", record_id(int(index))),))
    return said


def _custom(fields: Fields, _media: Media) -> Said:
    if _SHARED.type_of(fields) == LEAF_MARKER:
        return Said(LeafMoved(None), references=reference("target", fields, "parentId"))
    return _SHARED.custom(fields)


_READERS: dict[str, Reader] = {
    **_SHARED.readers(),
    "message": _message,
    "compaction": _compaction,
    "custom": _custom,
    "custom_message": lambda fields, media: _SHARED.custom_message(
        fields, content_of(fields, media)
    ),
    "session": lambda _, __: Said(ImportedRecord(FORMAT, "session")),
}
