"""Decode the records of an Operator file of version 3."""

from __future__ import annotations

from perdure.codecs.fields import Fields, name_in, object_in, text_in
from perdure.codecs.media import Media
from perdure.codecs.operator.messages import content_of, message_of, meta_of, usage_of
from perdure.codecs.operator.words import FORMAT, HEADERS
from perdure.codecs.protocol import Said, reference, unknown_record, unreadable_message
from perdure.codecs.shared_keys import OURS
from perdure.codecs.shared_records import Keys, Reader, SharedRecords
from perdure.session.notes import ImportedRecord, LeafMoved

_KEYS = Keys(
    envelope=("type", "id", "parent_id", "timestamp", "perdure"),
    custom_type="custom_type",
    target="target_id",
    provider="provider_id",
    model="model_id",
    thinking_level="thinking_level",
    tokens_before="tokens_before",
    first_kept="first_kept_entry_id",
    from_hook="from_hook",
    from_id="from_id",
    read_files="read_files",
    modified_files="modified_files",
)
_SHARED = SharedRecords(FORMAT, _KEYS, usage_of, {f"{OURS}context": "context"})


def said_by(fields: Fields, media: Media) -> Said:
    """Return the content of the record `fields`; an unknown record becomes a custom entry."""
    return _SHARED.said_by(_READERS, fields, media)


def _message(fields: Fields, media: Media) -> Said:
    message = object_in(fields, "message") or {}
    body = message_of(message, media)
    if body is not None:
        return Said(body, meta=meta_of(fields))
    role = name_in(message, "role")
    is_known = content_of(message, media) is None
    return unreadable_message(FORMAT, fields.get("message"), role, is_known=is_known)


def _second_header(fields: Fields, _media: Media) -> Said:
    return Said(ImportedRecord(FORMAT, text_in(fields, "type") or ""))


def _leaf(fields: Fields, _media: Media) -> Said:
    return Said(LeafMoved(None), references=reference("target", fields, _KEYS.target))


_READERS: dict[str, Reader] = {
    **_SHARED.readers(),
    **dict.fromkeys(HEADERS, _second_header),
    "message": _message,
    "custom_message": lambda fields, media: _SHARED.custom_message(
        fields, content_of(fields, media)
    ),
    "channel": lambda fields, _: Said(unknown_record(FORMAT, fields, _KEYS.envelope).body),
    "leaf": _leaf,
}
