"""Entries of perdure as records of a pi file of version 3.

Shape of a record: the keys in pi's own order, ``id``, ``parentId`` and ``timestamp`` not among
them; `line_of` puts those where pi puts them. What pi has no record for becomes a ``custom`` one,
which pi keeps and never shows a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from perdure.codecs.alike import OURS, ROOT, data_of
from perdure.codecs.fields import Fields, fields_of
from perdure.codecs.pi import words as pi
from perdure.codecs.pi.spelling import written
from perdure.session.codec import Body, Unknown, encode
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
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolResultPart,
)


class Writing(msgspec.Struct, frozen=True):
    """What records are made with: pi's ids of entries, and the media they refer to."""

    ids: Mapping[EntryId, str]
    media: Mapping[str, bytes]


def line_of(record: Fields, id: str, parent: str | None, at: int) -> bytes:
    """`record` as a line of a pi file, without the line's end."""
    return written(pi.placed(record, id, parent, at))


def header_of(session: str, at: int, cwd: str | None, parent: str | None) -> bytes:
    """The header line of a pi file."""
    return written(pi.header(session, at, cwd, parent))


def is_held(body: Body) -> bool:
    """Whether pi has a record for `body`, so that nothing of the conversation is lost."""
    match body:
        case Message():
            return body.role in ("user", "assistant", "tool")
        case Unknown():
            return False
        case _:
            return True


def records_of(entry: Entry, body: Body, writing: Writing) -> list[Fields]:
    """The records for the tree entry `entry`, each below the one before; one at least."""
    match body:
        case Message(role="tool"):
            found = [_tool_result(part, entry, writing) for part in _results(body)]
            return found or [pi.custom(f"{OURS}message", data_of(encode(body)))]
        case Message(role="user") | Message(role="assistant"):
            return [{"type": "message", "message": message_fields(body, entry.at, writing)}]
        case Message():
            return [pi.custom(f"{OURS}message", data_of(encode(body)))]
        case Unknown():
            return [pi.custom(f"{OURS}{entry.kind}", data_of(entry.body))]
        case _:
            make = _RECORDS.get(entry.kind)
            if make is None:
                return [pi.custom(f"{OURS}{entry.kind}", data_of(entry.body))]
            return [make(entry, body, writing)]


def is_image(part: MediaPart, media: Mapping[str, bytes]) -> bool:
    """Whether pi has a block for `part`, and its bytes are there. It would send all as images."""
    return part.handle in media and part.mime_type.startswith("image/")


def is_written(part: Part, role: str) -> bool:
    """Whether there is anything for `part` in a message of `role`."""
    if role == "assistant":
        return bool(pi.answer_blocks(part))
    if role == "tool":
        return isinstance(part, ToolResultPart)
    return bool(_block(part, Writing({}, {})))


def message_fields(message: Message, at: int, writing: Writing) -> Fields:
    """A message of the user, the assistant or (its first result) a tool, as pi's."""
    if message.role == "assistant":
        return pi.answer(message, at)
    if message.role == "tool" and _results(message):
        return _result_fields(_results(message)[0], at, writing)
    return pi.user(_content(message.parts, writing), at)


def _results(message: Message) -> list[ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def _tool_result(part: ToolResultPart, entry: Entry, writing: Writing) -> Fields:
    return {"type": "message", "message": _result_fields(part, entry.at, writing)}


def _result_fields(part: ToolResultPart, at: int, writing: Writing) -> Fields:
    return pi.result(part, _content((TextPart(part.text), *part.media), writing), at)


def _content(parts: Iterable[Part], writing: Writing) -> list[Fields]:
    return [block for part in parts for block in _block(part, writing)]


def _block(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case TextPart():
            return [pi.text_block(part.text)]
        case MediaPart() if is_image(part, writing.media):
            data = msgspec.to_builtins(writing.media[part.handle])  # base64, as in JSON
            return [{"type": "image", "data": data, "mimeType": part.mime_type}]
        case MediaPart():
            return [pi.text_block(f"[{part.mime_type}, not kept]")]
        case _:
            return []


# -- the other kinds of the tree


def _compaction(entry: Entry, body: Body, writing: Writing) -> Fields:
    assert isinstance(body, Compaction)
    # Its own id says "keeps nothing": it is never before itself on the branch.
    kept = writing.ids.get(body.first_kept or entry.id, writing.ids[entry.id])
    fields: Fields = {"type": "compaction", "summary": body.summary}
    if body.retained is None:
        fields["firstKeptEntryId"] = kept
    fields["tokensBefore"] = body.tokens_before or 0
    fields |= pi.details(body)
    if body.reason == "hook":
        fields["fromHook"] = True
    if body.usage is not None:
        fields["usage"] = pi.usage(body.usage)
    if body.retained is not None:
        tail = [message_fields(message, entry.at, writing) for message in body.retained]
        fields["retainedTail"] = tail
    return fields


def _branch_summary(_entry: Entry, body: Body, writing: Writing) -> Fields:
    assert isinstance(body, BranchSummary)
    origin = ROOT if body.from_id is None else writing.ids.get(body.from_id, ROOT)
    fields: Fields = {"type": "branch_summary", "fromId": origin, "summary": body.summary}
    fields |= pi.details(body)
    if body.usage is not None:
        fields["usage"] = pi.usage(body.usage)
    return fields


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> Fields:
    assert isinstance(body, ModelChange)
    return pi.model_change(body.model)


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> Fields:
    assert isinstance(body, ThinkingChange)
    return pi.thinking_change(body.level)


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> Fields:
    assert isinstance(body, Custom)
    return pi.custom(body.custom_type, body.data)


def _custom_message(entry: Entry, body: Body, writing: Writing) -> Fields:
    assert isinstance(body, CustomMessage)
    command = fields_of(body.details)
    if body.custom_type == pi.BASH and command is not None:
        message: Fields = {"role": "bashExecution", **command, "timestamp": entry.at}
        return {"type": "message", "message": message}
    if not body.in_context:
        return pi.custom(body.custom_type, data_of(encode(body)))
    content, details = _content(body.parts, writing), body.details
    return pi.custom_message(
        body.custom_type, content, is_displayed=body.is_displayed, details=details
    )


_RECORDS: dict[str, Callable[[Entry, Body, Writing], Fields]] = {
    Compaction.kind: _compaction,
    BranchSummary.kind: _branch_summary,
    ModelChange.kind: _model_change,
    ThinkingChange.kind: _thinking_change,
    Custom.kind: _custom_entry,
    CustomMessage.kind: _custom_message,
}
