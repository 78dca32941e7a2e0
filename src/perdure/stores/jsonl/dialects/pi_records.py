"""Entries as the records pi would have written for them."""

from __future__ import annotations

from collections.abc import Callable

from perdure.codecs.alike import OURS, ROOT
from perdure.codecs.fields import Fields
from perdure.codecs.pi import words as pi
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
    TextPart,
    ToolResultPart,
)
from perdure.session.notes import Label, SessionInfoChanged
from perdure.stores.jsonl.dialects.form import Writing, base64_of


def records_of(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    """The records for `entry`, each to follow the one before; empty where pi has no form."""
    if isinstance(body, Message) and body.role == "tool":
        return _results(entry, body, writing)
    make = _RECORDS.get(entry.kind)
    record = None if make is None else make(entry, body, writing)
    return [] if record is None else [record]


def _message(entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, Message):
        return None
    if body.role == "user":
        content = _content(body.parts, writing)
        return {"type": "message", "message": pi.user(content, entry.at)}
    if body.role == "assistant":
        return {"type": "message", "message": pi.answer(body, entry.at)}
    content = _content(body.parts, writing)
    return pi.custom_message(f"{OURS}{body.role}", content, is_displayed=False)


def _results(entry: Entry, body: Message, writing: Writing) -> list[Fields]:
    return [
        {"type": "message", "message": _result(part, entry.at, writing)}
        for part in body.parts
        if isinstance(part, ToolResultPart)
    ]


def _result(part: ToolResultPart, at: int, writing: Writing) -> Fields:
    return pi.result(part, _content((TextPart(part.text), *part.media), writing), at)


def _content(parts: tuple[Part, ...], writing: Writing) -> list[Fields]:
    return [block for part in parts for block in _block(part, writing)]


def _block(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case TextPart():
            return [pi.text_block(part.text)]
        case MediaPart():
            data = base64_of(part, writing)
            if data is None or not part.mime_type.startswith("image/"):
                return [pi.text_block(f"[{part.mime_type}, not shown]")]
            return [{"type": "image", "data": data, "mimeType": part.mime_type}]
        case _:
            return []


def _compaction(entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, Compaction):
        return None
    fields: Fields = {"type": "compaction", "summary": body.summary}
    if body.retained is None:
        kept = None if body.first_kept is None else writing.id(body.first_kept)
        # Its own id says "keeps nothing": it is never before itself on the branch.
        fields["firstKeptEntryId"] = kept or writing.own
    fields["tokensBefore"] = body.tokens_before or 0
    fields |= pi.details(body)
    if body.reason == "hook":
        fields["fromHook"] = True
    if body.retained is not None:
        fields["retainedTail"] = [
            tail for message in body.retained for tail in _retained(message, entry.at, writing)
        ]
    return fields


def _retained(message: Message, at: int, writing: Writing) -> list[Fields]:
    if message.role == "assistant":
        return [pi.answer(message, at)]
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if results:
        return [_result(part, at, writing) for part in results]
    return [pi.user(_content(message.parts, writing), at)]


def _branch_summary(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, BranchSummary):
        return None
    origin = None if body.from_id is None else writing.id(body.from_id)
    said: Fields = {"fromId": origin or ROOT, "summary": body.summary}
    return {"type": "branch_summary", **said, **pi.details(body)}


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    return pi.model_change(body.model) if isinstance(body, ModelChange) else None


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    return pi.thinking_change(body.level) if isinstance(body, ThinkingChange) else None


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    return pi.custom(body.custom_type, body.data) if isinstance(body, Custom) else None


def _custom_message(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, CustomMessage) or not body.in_context:
        return None
    content = _content(body.parts, writing)
    return pi.custom_message(
        body.custom_type, content, is_displayed=body.is_displayed, details=body.details
    )


def _label(entry: Entry, body: Body, writing: Writing) -> Fields | None:
    target = None if entry.about is None else writing.id(entry.about)
    if not isinstance(body, Label) or target is None:
        return None
    label = {"label": body.text} if body.text else {}
    return {"type": "label", "targetId": target, **label}


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
    Label.kind: _label,
    SessionInfoChanged.kind: _name,
}
