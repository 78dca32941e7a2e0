"""What the records of a pi file mean, of version 1, 2 and 3 and of newer pi."""

from __future__ import annotations

from collections.abc import Callable

from perdure.codecs.alike import OURS, model_name
from perdure.codecs.fields import (
    Fields,
    count_in,
    flag_in,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
    texts_in,
)
from perdure.codecs.form import (
    Said,
    custom_body,
    reference,
    titled,
    unknown_record,
    unreadable_message,
)
from perdure.codecs.ids import numbered
from perdure.codecs.media import Media
from perdure.codecs.pi.messages import (
    ROLES,
    custom_message_of,
    message_of,
    nested_usage,
    retained_of,
    usage_of,
)
from perdure.codecs.pi.words import FORMAT, LEAF_MARKER
from perdure.session.kinds import BranchSummary, Compaction, ModelChange, ThinkingChange
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord, Label, LeafMoved

ENVELOPE = ("type", "id", "parentId", "timestamp", "perdure")


def said_by(fields: Fields, media: Media) -> Said:
    """Return what the record `fields` means; an unknown one is a link of its branch."""
    read = _READERS.get(text_in(fields, "type") or "")
    said = None if read is None else read(fields, media)
    return unknown_record(FORMAT, fields, ENVELOPE) if said is None else said


def _message(fields: Fields, media: Media) -> Said:
    message = object_in(fields, "message") or {}
    body = message_of(message, media)
    if body is not None:
        return Said(body, meta=nested_usage(message))
    role = name_in(message, "role")
    return unreadable_message(FORMAT, fields.get("message"), role, is_known=role in ROLES)


def _thinking(fields: Fields, _media: Media) -> Said:
    return Said(ThinkingChange(text_in(fields, "thinkingLevel") or "off"))


def _model(fields: Fields, _media: Media) -> Said | None:
    model = model_name(name_in(fields, "provider"), name_in(fields, "modelId"))
    return Said(ModelChange(model)) if model else None


def _compaction(fields: Fields, media: Media) -> Said:
    files = object_in(fields, "details") or {}
    tail = list_in(fields, "retainedTail")
    body = Compaction(
        summary=text_in(fields, "summary") or "",
        tokens_before=count_in(fields, "tokensBefore") or None,
        reason="hook" if flag_in(fields, "fromHook") else "import",
        read_files=texts_in(files, "readFiles"),
        modified_files=texts_in(files, "modifiedFiles"),
        usage=usage_of(object_in(fields, "usage")),
        retained=None if tail is None else retained_of(tail, media),
    )
    index = number_in(fields, "firstKeptEntryIndex")  # version 1 has no ids
    if index is not None and name_in(fields, "firstKeptEntryId") is None:
        return Said(body, references=(("first_kept", numbered(int(index))),))
    return Said(body, references=reference("first_kept", fields, "firstKeptEntryId"))


def _branch_summary(fields: Fields, _media: Media) -> Said:
    files = object_in(fields, "details") or {}
    body = BranchSummary(
        summary=text_in(fields, "summary") or "",
        read_files=texts_in(files, "readFiles"),
        modified_files=texts_in(files, "modifiedFiles"),
        usage=usage_of(object_in(fields, "usage")),
    )
    return Said(body, references=reference("from_id", fields, "fromId"))


def _custom(fields: Fields, _media: Media) -> Said:
    custom_type = name_in(fields, "customType") or "pi:custom"
    if custom_type == LEAF_MARKER:
        return Said(LeafMoved(None), references=reference("target", fields, "parentId"))
    return Said(custom_body(FORMAT, custom_type, fields.get("data")))


def _custom_message(fields: Fields, media: Media) -> Said:
    body = custom_message_of(fields, media)
    if body is None:
        return unreadable_message(FORMAT, fields.get("content"), None, is_known=True)
    if body.custom_type == f"{OURS}context":
        return Said(Message("context", body.parts))
    if body.custom_type == f"{OURS}system":
        return Said(Message("system", body.parts))
    return Said(body)


def _label(fields: Fields, _media: Media) -> Said:
    return Said(Label(name_in(fields, "label")), about=name_in(fields, "targetId"))


def _second_header(_fields: Fields, _media: Media) -> Said:
    return Said(ImportedRecord(FORMAT, "session"))


_READERS: dict[str, Callable[[Fields, Media], Said | None]] = {
    "message": _message,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
    "model_change": _model,
    "thinking_level_change": _thinking,
    "custom": _custom,
    "custom_message": _custom_message,
    "label": _label,
    "session_info": titled,
    "session": _second_header,
}
