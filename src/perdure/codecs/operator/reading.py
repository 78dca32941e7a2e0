"""What the records of an Operator file of version 3 mean."""

from __future__ import annotations

from collections.abc import Callable

from perdure.codecs.alike import OURS, model_name
from perdure.codecs.fields import (
    Fields,
    count_in,
    flag_in,
    name_in,
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
from perdure.codecs.media import Media
from perdure.codecs.operator.messages import content_of, message_of, meta_of, usage_of
from perdure.codecs.operator.words import FORMAT, HEADERS
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import Message
from perdure.session.notes import ImportedRecord, Label, LeafMoved

ENVELOPE = ("type", "id", "parent_id", "timestamp", "perdure")


def said_by(fields: Fields, media: Media) -> Said:
    """Return what the record `fields` means; an unknown one is a link of its branch."""
    kind = text_in(fields, "type") or ""
    if kind in HEADERS:
        return Said(ImportedRecord(FORMAT, kind))
    read = _READERS.get(kind)
    said = None if read is None else read(fields, media)
    return unknown_record(FORMAT, fields, ENVELOPE) if said is None else said


def _message(fields: Fields, media: Media) -> Said:
    message = object_in(fields, "message") or {}
    body = message_of(message, media)
    if body is not None:
        return Said(body, meta=meta_of(fields))
    role = name_in(message, "role")
    is_known = content_of(message, media) is None
    return unreadable_message(FORMAT, fields.get("message"), role, is_known=is_known)


def _thinking(fields: Fields, _media: Media) -> Said:
    return Said(ThinkingChange(text_in(fields, "thinking_level") or "off"))


def _model(fields: Fields, _media: Media) -> Said | None:
    model = model_name(name_in(fields, "provider_id"), name_in(fields, "model_id"))
    return Said(ModelChange(model)) if model else None


def _compaction(fields: Fields, _media: Media) -> Said:
    files = object_in(fields, "details") or {}
    body = Compaction(
        summary=text_in(fields, "summary") or "",
        tokens_before=count_in(fields, "tokens_before") or None,
        reason="hook" if flag_in(fields, "from_hook") else "import",
        read_files=texts_in(files, "read_files"),
        modified_files=texts_in(files, "modified_files"),
        usage=usage_of(object_in(fields, "usage")),
    )
    return Said(body, references=reference("first_kept", fields, "first_kept_entry_id"))


def _branch_summary(fields: Fields, _media: Media) -> Said:
    files = object_in(fields, "details") or {}
    body = BranchSummary(
        summary=text_in(fields, "summary") or "",
        read_files=texts_in(files, "read_files"),
        modified_files=texts_in(files, "modified_files"),
        usage=usage_of(object_in(fields, "usage")),
    )
    return Said(body, references=reference("from_id", fields, "from_id"))


def _custom(fields: Fields, _media: Media) -> Said:
    custom_type = name_in(fields, "custom_type") or "operator:custom"
    return Said(custom_body(FORMAT, custom_type, fields.get("data")))


def _custom_message(fields: Fields, media: Media) -> Said:
    parts = content_of(fields, media)
    if parts is None:
        return unreadable_message(FORMAT, fields.get("content"), None, is_known=True)
    custom_type = name_in(fields, "custom_type") or "operator:custom"
    if custom_type == f"{OURS}context":
        return Said(Message("context", parts))
    is_displayed = flag_in(fields, "display", default=True)
    return Said(CustomMessage(custom_type, parts, is_displayed, details=fields.get("details")))


def _channel(fields: Fields, _media: Media) -> Said:
    said = unknown_record(FORMAT, fields, ENVELOPE)
    return Said(said.body)


def _leaf(fields: Fields, _media: Media) -> Said:
    return Said(LeafMoved(None), references=reference("target", fields, "target_id"))


def _label(fields: Fields, _media: Media) -> Said:
    return Said(Label(name_in(fields, "label")), about=name_in(fields, "target_id"))


_READERS: dict[str, Callable[[Fields, Media], Said | None]] = {
    "message": _message,
    "compaction": _compaction,
    "branch_summary": _branch_summary,
    "model_change": _model,
    "thinking_level_change": _thinking,
    "custom": _custom,
    "custom_message": _custom_message,
    "channel": _channel,
    "leaf": _leaf,
    "label": _label,
    "session_info": titled,
}
