"""The records of Operator's session files of version 3, and how perdure's entries become them.

Shape of a record: its ``type`` and the fields of its own, in Operator's order; `line_of` puts
``id``, ``timestamp`` and ``parent_id`` before them. Fields without a value are left out, as
Operator does. What Operator has no record for becomes a ``custom`` one, which it keeps and never
shows a model.
Source: the form is Operator's of 2026; its header says version 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from perdure.codecs.alike import OURS, data_of, meta_of
from perdure.codecs.fields import Fields
from perdure.codecs.ids import message_id, written_id
from perdure.codecs.operator import words as operator
from perdure.codecs.operator.spelling import written
from perdure.codecs.operator.words import HEADER
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
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
)

FORMAT = "operator"
HEADERS = (HEADER, "session_header")
"""Types of a header line: what Operator writes, and what its documentation says."""
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


def header_of(session: str, at: int, cwd: str | None) -> bytes:
    """The header line of a file."""
    return written(operator.header(session, at, cwd))


def line_of(record: Fields, id: str, parent: str | None, at: int) -> bytes:
    """`record` as a line of a file, without the line's end."""
    return written(operator.placed(record, id, parent, at))


# -- records of the tree


def records_of(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
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
            return [operator.custom(OURS + entry.kind, data_of(entry.body))]
        case _:
            make = _RECORDS.get(entry.kind)
            if make is None:
                return [operator.custom(OURS + entry.kind, data_of(entry.body))]
            return [make(entry, body, writing)]


def _message_record(message: Message, entry: Entry, ordinal: int, writing: Writing) -> Fields:
    if message.role == CONTEXT:
        content = [block for part in message.parts for block in _said(part, writing)]
        return operator.custom_message(OURS + "context", content, is_displayed=False)
    fields: Fields = {
        "type": "message",
        "message": message_fields(message, entry, ordinal, writing),
    }
    known = meta_of(entry.body) if entry.kind == MESSAGE else {}
    meta = {name: known[name] for name in META if name in known}
    return {**fields, "meta": meta} if meta else fields


def message_fields(message: Message, entry: Entry, ordinal: int, writing: Writing) -> Fields:
    """A message as Operator's. `ordinal` tells the messages made of one entry apart."""
    make = _result_block if message.role == "tool" else _block
    blocks = [block for part in message.parts for block in make(part, writing)]
    own = message_id(entry.id, ordinal)
    fields = operator.message(message, blocks, own, entry.at)
    if message.role == "assistant":
        if message.usage is not None:
            fields["usage"] = operator.usage(message.usage)
        fields |= operator.ending(message)
    return fields


def _block(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case ToolResultPart():
            return _result_block(part, writing)
        case ThinkingPart() | ToolCallPart():
            return operator.blocks(part)
        case _:
            return _said(part, writing)


def _result_block(part: Part, writing: Writing) -> list[Fields]:
    """A tool message holds results only; whatever else is in one of ours is shown as text."""
    if not isinstance(part, ToolResultPart):
        return _said(part, writing)
    return [operator.result_block(part.call_id, part.text, {}, is_error=part.is_error)]


def _said(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case TextPart():
            return operator.blocks(part)
        case MediaPart():
            return [_medium(part, writing)]
        case _:
            return []


def _medium(part: MediaPart, writing: Writing) -> Fields:
    if not is_held(part, writing.media):
        return operator.text_block(f"[{part.mime_type}, not kept]")
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


def _compaction(entry: Entry, body: Compaction, writing: Writing) -> list[Fields]:
    """A compaction; before it, what it kept verbatim, as messages for it to begin at.

    One that was taken back would be in force for Operator, so it is told as a custom record.
    """
    if entry.id in writing.undone:
        return [operator.custom(OURS + entry.kind, data_of(entry.body))]
    retained = () if entry.id in writing.kept_over else body.retained or ()
    records = [_message_record(each, entry, n, writing) for n, each in enumerate(retained)]
    kept = written_id(entry.id, 1) if retained else None
    if body.retained is None and body.first_kept is not None:
        kept = writing.ids.get(body.first_kept)
    # Its own id says "keeps nothing": it is never before itself on the branch.
    return [*records, operator.compaction(body, kept or writing.ids[entry.id])]


def _branch_summary(entry: Entry, body: Body, writing: Writing) -> Fields:
    assert isinstance(body, BranchSummary)
    if not body.summary.strip():  # Operator would tell a model that there is an empty summary
        return operator.custom(OURS + entry.kind, data_of(entry.body))
    origin = None if body.from_id is None else writing.ids.get(body.from_id)
    return operator.branch_summary(body, origin)


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> Fields:
    assert isinstance(body, ModelChange)
    provider, colon, model = body.model.partition(":")
    named = (model, provider) if colon else (body.model, "unknown")
    return {"type": "model_change", "model_id": named[0], "provider_id": named[1]}


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> Fields:
    assert isinstance(body, ThinkingChange)
    return operator.thinking_change(body.level)


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> Fields:
    assert isinstance(body, Custom)
    return operator.custom(body.custom_type, body.data)


def _custom_message_entry(entry: Entry, body: Body, writing: Writing) -> Fields:
    assert isinstance(body, CustomMessage)
    if not body.in_context:
        return operator.custom(OURS + entry.kind, data_of(entry.body))
    content = [block for part in body.parts for block in _said(part, writing)]
    return operator.custom_message(
        body.custom_type, content, is_displayed=body.is_displayed, details=body.details
    )


_RECORDS: dict[str, Callable[[Entry, Body, Writing], Fields]] = {
    BranchSummary.kind: _branch_summary,
    ModelChange.kind: _model_change,
    ThinkingChange.kind: _thinking_change,
    Custom.kind: _custom_entry,
    CustomMessage.kind: _custom_message_entry,
}
