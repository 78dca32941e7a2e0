"""The records of Operator's session files of version 3, and how perdure's entries become them.

Shape of a record: its ``type`` and the fields of its own, in Operator's order; `line_of` puts
``id``, ``timestamp`` and ``parent_id`` before them. Fields without a value are left out, as
Operator does. What Operator has no record for becomes a ``custom`` one, which it keeps and never
shows a model.
Source: the form is Operator's of 2026; its header says version 3.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

import msgspec

from perdure.interop.formats.items import meta_of
from perdure.interop.formats.operator.spelling import written
from perdure.session.codec import Body, Unknown
from perdure.session.entries import Entry
from perdure.session.ids import EntryId
from perdure.session.kinds import (
    BranchSummary,
    Compaction,
    Custom,
    CustomMessage,
    ModelChange,
    ThinkingChange,
)
from perdure.session.messages import (
    MESSAGE,
    MediaPart,
    Message,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

FORMAT = "operator"
VERSION = 3
HEADER = "session"
HEADERS = (HEADER, "session_header")
"""Types of a header line: what Operator writes, and what its documentation says."""
ROOT = "root"
"""What a branch summary names when it grows from before the root."""
OUR_TYPES = "perdure."
"""What the types of our own ``custom`` records begin with; the entry's kind follows."""

MICROCENTS_PER_DOLLAR = 100_000_000
STOP_REASONS: Mapping[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "content_filter": "content_filter",
    "aborted": "abort",
    "error": "error",
}
"""perdure's stop reasons in Operator's words; one to one."""

RecordFields = dict[str, object]

_ID_DIGITS = 8
CONTEXT = "context"
"""A role that Operator has not; it is the user's for a model."""

META = ("reply_to", "channel_message_id", "attachments", "reactions")
"""What a gateway says of a message."""


class Writing(msgspec.Struct, frozen=True):
    """What records are made with: Operator's ids of entries, and the media they refer to.

    `undone` are compactions that were taken back, `kept_over` those that a later one keeps from
    before of: what they retained would be in its context.
    """

    ids: Mapping[EntryId, str]
    media: Mapping[str, bytes]
    undone: frozenset[EntryId] = frozenset()
    kept_over: frozenset[EntryId] = frozenset()


def written_id(entry: EntryId, ordinal: int = 0, attempt: int = 0) -> str:
    """The id of a record made of `entry`; other `ordinal`s and `attempt`s give others."""
    return _digest(entry, ordinal, attempt).hex()[:_ID_DIGITS]


def _digest(entry: EntryId, ordinal: int, attempt: int) -> bytes:
    return hashlib.sha256(f"{entry} {ordinal} {attempt}".encode()).digest()


def seconds(at: int) -> float:
    """The time `at` in Operator's unit."""
    return at / 1000


def header_of(session: str, at: int, cwd: str | None) -> bytes:
    """The header line of a file."""
    return written(
        {
            "type": HEADER,
            "version": VERSION,
            "id": session,
            "timestamp": seconds(at),
            "cwd": cwd or "",
        }
    )


def line_of(record: RecordFields, id: str, parent: str | None, at: int) -> bytes:
    """`record` as a line of a file, without the line's end."""
    place: RecordFields = {"id": id, "timestamp": seconds(at)}
    if parent is not None:
        place["parent_id"] = parent
    return written({**place, **record})


# -- records of the tree


def records_of(entry: Entry, body: Body, writing: Writing) -> list[RecordFields]:
    """The records for the tree entry `entry`, each below the one before; one at least.

    Shape: the last one stands for the entry and has its id, those before it `written_id` with the
    ordinals from 1. By Operator's own rules they stand for the same messages as the entry.
    """
    match body:
        case Message():
            return [_message_record(body, entry, 0, writing)]
        case Compaction():
            return _compaction(entry, body, writing)
        case Unknown():
            return [_custom(OUR_TYPES + entry.kind, _plain(entry.body))]
        case _:
            make = _RECORDS.get(entry.kind)
            if make is None:
                return [_custom(OUR_TYPES + entry.kind, _plain(entry.body))]
            return [make(entry, body, writing)]


def _message_record(message: Message, entry: Entry, ordinal: int, writing: Writing) -> RecordFields:
    if message.role == CONTEXT:
        content = [block for part in message.parts for block in _said(part, writing)]
        return _custom_message(OUR_TYPES + "context", content, is_displayed=False, details=None)
    fields: RecordFields = {
        "type": "message",
        "message": message_fields(message, entry, ordinal, writing),
    }
    known = meta_of(entry.body) if entry.kind == MESSAGE else {}
    meta = {name: known[name] for name in META if name in known}
    return {**fields, "meta": meta} if meta else fields


def message_fields(message: Message, entry: Entry, ordinal: int, writing: Writing) -> RecordFields:
    """A message as Operator's. `ordinal` tells the messages made of one entry apart."""
    make = _result_block if message.role == "tool" else _block
    fields: RecordFields = {
        "contents": [block for part in message.parts for block in make(part, writing)],
        "id": str(UUID(bytes=_digest(entry.id, ordinal, 0)[:16], version=4)),
        "timestamp": seconds(entry.at),
        "role": message.role,
    }
    if message.role == "assistant":
        if message.usage is not None:
            fields["usage"] = usage_fields(message.usage)
        default = "tool_calls" if message.tool_calls else "stop"
        reason = message.stop_reason
        fields["stop_reason"] = default if reason is None else STOP_REASONS[reason]
        fields["error"] = message.error or ""
    return fields


def usage_fields(usage: Usage) -> RecordFields:
    """Usage as Operator's; what a call cost is known as a whole only."""
    cost: RecordFields = dict.fromkeys(("input", "output", "cache_read", "cache_write"), 0.0)
    cost["total"] = (usage.cost_microcents or 0) / MICROCENTS_PER_DOLLAR
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cost": cost,
    }


def _block(part: Part, writing: Writing) -> Iterable[RecordFields]:
    match part:
        case ThinkingPart(is_redacted=False):
            # Without a signature, but with the field: a reader may insist on it.
            return ({"type": "thinking", "content": part.text, "signature": ""},)
        case ToolCallPart():
            return (
                {
                    "type": "tool_call",
                    "id": part.id,
                    "name": part.name,
                    "args": part.args,
                    "metadata": {},
                },
            )
        case ToolResultPart():
            return _result_block(part, writing)
        case _:
            return _said(part, writing)


def _result_block(part: Part, writing: Writing) -> Iterable[RecordFields]:
    """A tool message holds results only; whatever else is in one of ours is shown as text."""
    if not isinstance(part, ToolResultPart):
        return _said(part, writing)
    return (
        {
            "type": "tool_result",
            "id": part.call_id,
            "content": part.text,
            "is_error": part.is_error,
            "metadata": {},
            "terminate": False,
        },
    )


def _said(part: Part, writing: Writing) -> Iterable[RecordFields]:
    match part:
        case TextPart():
            return ({"type": "text", "content": part.text},)
        case MediaPart():
            return (_medium(part, writing),)
        case _:
            return ()


def _medium(part: MediaPart, writing: Writing) -> RecordFields:
    if not is_held(part, writing.media):
        return {"type": "text", "content": f"[{part.mime_type}, not kept]"}
    data = msgspec.to_builtins(writing.media[part.handle])  # base64, as in JSON
    if part.mime_type.startswith("audio/"):
        return {"type": "audio", "audio": data}
    return {"type": "image", "images": [data]}


def is_written(part: Part, role: str) -> bool:
    """Whether there is anything for `part` in a record of a message of `role`."""
    writing = Writing({}, {})
    if role == CONTEXT:
        return bool(_said(part, writing))
    return bool((_result_block if role == "tool" else _block)(part, writing))


def is_held(part: MediaPart, media: Mapping[str, bytes]) -> bool:
    """Whether Operator has a part for `part`, and its bytes are there."""
    return part.handle in media and part.mime_type.startswith(("image/", "audio/"))


# -- the other kinds


def _compaction(entry: Entry, body: Compaction, writing: Writing) -> list[RecordFields]:
    """A compaction; before it, what it kept verbatim, as messages for it to begin at.

    One that was taken back would be in force for Operator, so it is told as a custom record.
    """
    if entry.id in writing.undone:
        return [_custom(OUR_TYPES + entry.kind, _plain(entry.body))]
    retained = () if entry.id in writing.kept_over else body.retained or ()
    records = [_message_record(each, entry, n, writing) for n, each in enumerate(retained)]
    kept = written_id(entry.id, 1) if retained else None
    if body.retained is None and body.first_kept is not None:
        kept = writing.ids.get(body.first_kept)
    fields: RecordFields = {
        "type": "compaction",
        "summary": body.summary,
        # Its own id says "keeps nothing": it is never before itself on the branch.
        "first_kept_entry_id": kept or writing.ids[entry.id],
        "tokens_before": body.tokens_before or 0,
        **_details(body.read_files, body.modified_files),
        "from_hook": body.reason == "hook",
    }
    return [*records, fields]


def _branch_summary(entry: Entry, body: Body, writing: Writing) -> RecordFields:
    assert isinstance(body, BranchSummary)
    if not body.summary.strip():  # Operator would tell a model that there is an empty summary
        return _custom(OUR_TYPES + entry.kind, _plain(entry.body))
    return {
        "type": "branch_summary",
        "from_id": ROOT if body.from_id is None else writing.ids.get(body.from_id, ROOT),
        "summary": body.summary,
        **_details(body.read_files, body.modified_files),
        "from_hook": False,
    }


def _details(read: tuple[str, ...], modified: tuple[str, ...]) -> RecordFields:
    if not read and not modified:
        return {}
    return {"details": {"read_files": list(read), "modified_files": list(modified)}}


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> RecordFields:
    assert isinstance(body, ModelChange)
    provider, colon, model = body.model.partition(":")
    named = (model, provider) if colon else (body.model, "unknown")
    return {"type": "model_change", "model_id": named[0], "provider_id": named[1]}


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> RecordFields:
    assert isinstance(body, ThinkingChange)
    return {"type": "thinking_level_change", "thinking_level": body.level}


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> RecordFields:
    assert isinstance(body, Custom)
    return _custom(body.custom_type, body.data)


def _custom_message_entry(entry: Entry, body: Body, writing: Writing) -> RecordFields:
    assert isinstance(body, CustomMessage)
    if not body.in_context:
        return _custom(OUR_TYPES + entry.kind, _plain(entry.body))
    content = [block for part in body.parts for block in _said(part, writing)]
    return _custom_message(
        body.custom_type, content, is_displayed=body.is_displayed, details=body.details
    )


def _custom_message(
    custom_type: str, content: list[RecordFields], *, is_displayed: bool, details: object
) -> RecordFields:
    fields: RecordFields = {
        "type": "custom_message",
        "custom_type": custom_type,
        "content": content,
        "display": is_displayed,
    }
    return fields if details is None else {**fields, "details": details}


def _custom(custom_type: str, data: object) -> RecordFields:
    fields: RecordFields = {"type": "custom", "custom_type": custom_type}
    return fields if data is None else {**fields, "data": data}


def _plain(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {"base64": msgspec.to_builtins(body)}


_RECORDS: dict[str, Callable[[Entry, Body, Writing], RecordFields]] = {
    BranchSummary.kind: _branch_summary,
    ModelChange.kind: _model_change,
    ThinkingChange.kind: _thinking_change,
    Custom.kind: _custom_entry,
    CustomMessage.kind: _custom_message_entry,
}
