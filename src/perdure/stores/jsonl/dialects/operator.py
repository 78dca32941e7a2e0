"""Operator's session files: what we write into them, and what its records mean here."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable

from perdure.codecs.alike import OURS
from perdure.codecs.fields import (
    Fields,
    count_in,
    list_in,
    name_in,
    object_in,
    text_in,
    texts_in,
)
from perdure.codecs.operator import words as operator
from perdure.codecs.times import time_of
from perdure.session.codec import Body
from perdure.session.entries import Entry
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import ImportedRecord, Label, LeafMoved, SessionInfoChanged
from perdure.stores.jsonl.dialects.form import (
    Said,
    Writing,
    base64_of,
    local_name,
    media_of,
    reference,
    titled,
    unknown_part,
    unknown_record,
    usage_from,
)

_ROLES: dict[str, Role] = {"user": "user", "system": "system", "assistant": "assistant"}
_PLACE = ("id", "timestamp", "parent_id", "type", "perdure")


class Operator:
    """Operator's session files, header version 3."""

    name = "operator"
    is_escaped = True
    has_leaf_record = True
    oldest_version = 0  # Operator never looks at the version

    def file_name(self, at: int, session: str) -> str:
        return local_name(at, session, "%Y-%m-%dT%H-%M-%S-%f")

    def header(self, session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
        return operator.header(session, at, cwd, parent)

    def records(self, entry: Entry, body: Body, writing: Writing) -> list[Fields]:
        make = _RECORDS.get(entry.kind)
        record = None if make is None else make(entry, body, writing)
        return [] if record is None else [record]

    def custom(self, custom_type: str, data: Fields) -> Fields:
        return operator.custom(custom_type, data)

    def placed(self, record: Fields, id: str, parent: str | None, at: int) -> Fields:
        return operator.placed(record, id, parent, at)

    def time_of(self, timestamp: float | str | None) -> int | None:
        if isinstance(timestamp, str):
            return time_of(timestamp)
        is_time = timestamp is not None and abs(timestamp) < 2**43
        return round(timestamp * 1000) if timestamp is not None and is_time else None

    def said(self, fields: Fields) -> Said:
        read = _READERS.get(text_in(fields, "type") or "")
        said = None if read is None else read(fields)
        return unknown_record("operator", fields, _PLACE) if said is None else said


# ---------------------------------------------------------------- writing


def _message(entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, Message):
        return None
    if body.role == "context":
        return _shown(f"{OURS}context", body.parts, writing, is_displayed=False)
    own = str(uuid.UUID(bytes=hashlib.sha256(writing.own.encode()).digest()[:16], version=4))
    blocks = [block for part in body.parts for block in _blocks(part, writing)]
    message = operator.message(body, blocks, own, entry.at)
    if body.role == "assistant":
        message["usage"] = operator.usage(body.usage or Usage())
        message |= operator.ending(body)
    return {"type": "message", "message": message}


def _blocks(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case ToolResultPart():
            named = {} if part.name is None else {"name": part.name}
            return [operator.result_block(part.call_id, part.text, named, is_error=part.is_error)]
        case MediaPart():
            data = base64_of(part, writing)
            if data is None or not part.mime_type.startswith("image/"):
                return [operator.text_block(f"[{part.mime_type}, not shown]")]
            return [{"type": "image", "images": [data]}]
        case _:
            return operator.blocks(part)


def _shown(
    custom_type: str,
    parts: tuple[Part, ...],
    writing: Writing,
    *,
    is_displayed: bool,
    details: object = None,
) -> Fields:
    content = [block for part in parts for block in _blocks(part, writing)]
    shown = [block for block in content if block["type"] in ("text", "image")]
    return operator.custom_message(custom_type, shown, is_displayed=is_displayed, details=details)


def _compaction(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, Compaction):
        return None
    kept = None if body.first_kept is None else writing.id(body.first_kept)
    # Its own id says "keeps nothing": it is never before itself on the branch.
    return operator.compaction(body, kept or writing.own)


def _branch_summary(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, BranchSummary):
        return None
    origin = None if body.from_id is None else writing.id(body.from_id)
    return operator.branch_summary(body, origin)


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    if not isinstance(body, ModelChange):
        return None
    provider, colon, model = body.model.partition(":")
    names = (model, provider) if colon else (body.model, "")
    return {"type": "model_change", "model_id": names[0], "provider_id": names[1]}


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    return operator.thinking_change(body.level) if isinstance(body, ThinkingChange) else None


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    return operator.custom(body.custom_type, body.data) if isinstance(body, Custom) else None


def _custom_message(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, CustomMessage) or not body.in_context:
        return None
    shown, details = body.is_displayed, body.details
    return _shown(body.custom_type, body.parts, writing, is_displayed=shown, details=details)


def _leaf(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, LeafMoved):
        return None
    target = None if body.target is None else writing.id(body.target)
    return {"type": "leaf"} if target is None else {"type": "leaf", "target_id": target}


def _label(entry: Entry, body: Body, writing: Writing) -> Fields | None:
    target = None if entry.about is None else writing.id(entry.about)
    if not isinstance(body, Label) or target is None:
        return None
    label = {"label": body.text} if body.text else {}
    return {"type": "label", **label, "target_id": target}


def _name(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    if not isinstance(body, SessionInfoChanged) or not isinstance(body.title, str):
        return None
    return {"type": "session_info", "name": body.title}


_RECORDS: dict[str, Callable[[Entry, Body, Writing], Fields | None]] = {
    "message": _message,
    Compaction.kind: _compaction,
    BranchSummary.kind: _branch_summary,
    ModelChange.kind: _model_change,
    ThinkingChange.kind: _thinking_change,
    Custom.kind: _custom_entry,
    CustomMessage.kind: _custom_message,
    LeafMoved.kind: _leaf,
    Label.kind: _label,
    SessionInfoChanged.kind: _name,
}


# ---------------------------------------------------------------- reading


def _read_message(fields: Fields) -> Said | None:
    message = object_in(fields, "message") or {}
    contents = list_in(message, "contents")
    role = text_in(message, "role")
    known = "tool" if role == "tool" else _ROLES.get(role or "")
    if contents is None or known is None:
        return None
    parts, media = _parts(contents)
    if known != "assistant":
        return Said(Message(known, parts), media=media)
    body = Message(
        "assistant",
        parts,
        stop_reason=operator.STOP_REASONS.get(text_in(message, "stop_reason")),
        usage=usage_from(object_in(message, "usage"), operator.TOKENS),
        error=name_in(message, "error"),
    )
    return Said(body, media=media)


def _parts(contents: list[object]) -> tuple[tuple[Part, ...], tuple[bytes, ...]]:
    parts: list[Part] = []
    media: list[bytes] = []
    for item in contents:
        fields = object_in({"item": item}, "item")
        if fields is None:
            parts += [TextPart(item)] if isinstance(item, str) else []
        elif text_in(fields, "type") == "image":
            for part, content in _images(fields):
                parts.append(part)
                media += [] if content is None else [content]
        else:
            parts.append(_part(fields))
    return tuple(parts), tuple(media)


def _part(fields: Fields) -> Part:
    text = text_in(fields, "content")
    match text_in(fields, "type"):
        case "text" if text is not None:
            return TextPart(text)
        case "thinking" if text is not None:
            return ThinkingPart(text)
        case "tool_call" if (name := name_in(fields, "name")) is not None:
            args = object_in(fields, "args") or {}
            return ToolCallPart(text_in(fields, "id") or "", name, args)
        case "tool_result":
            return ToolResultPart(
                text_in(fields, "id") or "",
                text or "",
                is_error=fields.get("is_error") is True,
                name=name_in(object_in(fields, "metadata") or {}, "name"),
            )
        case _:
            return unknown_part(fields)


def _images(fields: Fields) -> list[tuple[Part, bytes | None]]:
    found: list[tuple[Part, bytes | None]] = []
    for image in texts_in(fields, "images"):
        media = media_of(image, None)
        found.append(media or (unknown_part({"type": "image", "images": [image]}), None))
    return found


def _read_compaction(fields: Fields) -> Said:
    files = object_in(fields, "details") or {}
    body = Compaction(
        summary=text_in(fields, "summary") or "",
        tokens_before=count_in(fields, "tokens_before") or None,
        reason="hook" if fields.get("from_hook") is True else "manual",
        read_files=texts_in(files, "read_files"),
        modified_files=texts_in(files, "modified_files"),
    )
    return Said(body, references=reference("first_kept", fields, "first_kept_entry_id"))


def _read_branch_summary(fields: Fields) -> Said:
    files = object_in(fields, "details") or {}
    body = BranchSummary(
        summary=text_in(fields, "summary") or "",
        read_files=texts_in(files, "read_files"),
        modified_files=texts_in(files, "modified_files"),
    )
    return Said(body, references=reference("from_id", fields, "from_id"))


def _read_model_change(fields: Fields) -> Said | None:
    names = (name_in(fields, "provider_id"), name_in(fields, "model_id"))
    model = ":".join(name for name in names if name)
    return Said(ModelChange(model)) if model else None


def _read_thinking_change(fields: Fields) -> Said:
    return Said(ThinkingChange(text_in(fields, "thinking_level") or "off"))


def _read_custom(fields: Fields) -> Said:
    custom_type = name_in(fields, "custom_type") or "operator:custom"
    if custom_type.startswith(OURS):
        return Said(ImportedRecord("operator", custom_type))
    return Said(Custom(custom_type, fields.get("data")))


def _read_custom_message(fields: Fields) -> Said:
    parts, media = _parts(list_in(fields, "content") or [])
    custom_type = name_in(fields, "custom_type") or "operator:custom"
    if custom_type == f"{OURS}context":
        return Said(Message("context", parts), media=media)
    is_displayed = fields.get("display") is not False
    details = fields.get("details")
    body = CustomMessage(custom_type, parts, is_displayed=is_displayed, details=details)
    return Said(body, media=media)


def _read_leaf(fields: Fields) -> Said:
    return Said(LeafMoved(None), references=reference("target", fields, "target_id"))


def _read_label(fields: Fields) -> Said:
    return Said(Label(name_in(fields, "label")), about=name_in(fields, "target_id"))


def _read_second_header(_fields: Fields) -> Said:
    return Said(ImportedRecord("operator", "session"))


_READERS: dict[str, Callable[[Fields], Said | None]] = {
    "message": _read_message,
    "compaction": _read_compaction,
    "branch_summary": _read_branch_summary,
    "model_change": _read_model_change,
    "thinking_level_change": _read_thinking_change,
    "custom": _read_custom,
    "custom_message": _read_custom_message,
    "leaf": _read_leaf,
    "label": _read_label,
    "session_info": titled,
    "session": _read_second_header,
}
