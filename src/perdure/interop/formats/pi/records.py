"""Entries of perdure as records of a pi file of version 3.

Shape of a record: the keys in pi's own order, ``id``, ``parentId`` and ``timestamp`` not among
them; `line_of` puts those where pi puts them. What pi has no record for becomes a ``custom`` one,
which pi keeps and never shows a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from perdure.interop.formats.fields import fields_of
from perdure.interop.formats.pi.javascript import written
from perdure.interop.formats.pi.messages import BASH, MICROCENTS_PER_DOLLAR
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
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

RecordFields = dict[str, object]

VERSION = 3
ROOT = "root"
"""What a branch summary names when it grows from before the root."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDS_LAST = ("custom", "custom_message")
_STOP_REASONS: dict[StopReason | None, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "content_filter": "error",
    "aborted": "aborted",
    "error": "error",
}
_APIS = {
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
    "openai": "openai-responses",
}
_OTHER_API = "openai-completions"


class Writing(msgspec.Struct, frozen=True):
    """What records are made with: pi's ids of entries, and the media they refer to."""

    ids: Mapping[EntryId, str]
    media: Mapping[str, bytes]


def line_of(record: RecordFields, id: str, parent: str | None, at: int) -> bytes:
    """`record` as a line of a pi file, without the line's end."""
    place: RecordFields = {"id": id, "parentId": parent, "timestamp": timestamp(at)}
    if record["type"] in _IDS_LAST:
        return written({**record, **place})
    rest = {key: value for key, value in record.items() if key != "type"}
    return written({"type": record["type"], **place, **rest})


def timestamp(at: int) -> str:
    """The time `at` as pi writes it. Times outside the years 1 to 9999 become 1970."""
    try:
        moment = _EPOCH + timedelta(milliseconds=at)
    except OverflowError:
        moment = _EPOCH
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + f".{moment.microsecond // 1000:03d}Z"


def header_of(session: str, at: int, cwd: str | None, parent: str | None) -> bytes:
    """The header line of a pi file."""
    header: RecordFields = {
        "type": "session",
        "version": VERSION,
        "id": session,
        "timestamp": timestamp(at),
        "cwd": cwd or "",
    }
    if parent is not None:
        header["parentSession"] = parent
    return written(header)


def is_held(body: Body) -> bool:
    """Whether pi has a record for `body`, so that nothing of the conversation is lost."""
    match body:
        case Message():
            return body.role in ("user", "assistant", "tool")
        case Unknown():
            return False
        case _:
            return True


def records_of(entry: Entry, body: Body, writing: Writing) -> list[RecordFields]:
    """The records for the tree entry `entry`, each below the one before; one at least."""
    match body:
        case Message(role="tool"):
            found = [_tool_result(part, entry, writing) for part in _results(body)]
            return found or [_custom("perdure.message", _plain(encode(body)))]
        case Message(role="user") | Message(role="assistant"):
            return [{"type": "message", "message": message_fields(body, entry.at, writing)}]
        case Message():
            return [_custom("perdure.message", _plain(encode(body)))]
        case Unknown():
            return [_custom(f"perdure.{entry.kind}", _plain(entry.body))]
        case _:
            make = _RECORDS.get(entry.kind)
            if make is None:
                return [_custom(f"perdure.{entry.kind}", _plain(entry.body))]
            return [make(entry, body, writing)]


def is_image(part: MediaPart, media: Mapping[str, bytes]) -> bool:
    """Whether pi has a block for `part`, and its bytes are there. It would send all as images."""
    return part.handle in media and part.mime_type.startswith("image/")


def is_written(part: Part, role: str) -> bool:
    """Whether there is anything for `part` in a message of `role`."""
    if role == "assistant":
        return bool(_answer_block(part))
    if role == "tool":
        return isinstance(part, ToolResultPart)
    return bool(_block(part, Writing({}, {})))


def message_fields(message: Message, at: int, writing: Writing) -> RecordFields:
    """A message of the user, the assistant or (its first result) a tool, as pi's."""
    if message.role == "assistant":
        return _assistant(message, at)
    if message.role == "tool" and _results(message):
        return _result_fields(_results(message)[0], at, writing)
    return {"role": "user", "content": _content(message.parts, writing), "timestamp": at}


def _results(message: Message) -> list[ToolResultPart]:
    return [part for part in message.parts if isinstance(part, ToolResultPart)]


def _tool_result(part: ToolResultPart, entry: Entry, writing: Writing) -> RecordFields:
    return {"type": "message", "message": _result_fields(part, entry.at, writing)}


def _result_fields(part: ToolResultPart, at: int, writing: Writing) -> RecordFields:
    return {
        "role": "toolResult",
        "toolCallId": part.call_id,
        "toolName": part.name or "",
        "content": _content((TextPart(part.text), *part.media), writing),
        "isError": part.is_error,
        "timestamp": at,
    }


def _assistant(message: Message, at: int) -> RecordFields:
    provider, model = _provider_and_model(message.model)
    default = "toolUse" if message.tool_calls else "stop"
    fields: RecordFields = {
        "role": "assistant",
        "content": [block for part in message.parts for block in _answer_block(part)],
        "api": _APIS.get(provider, _OTHER_API),
        "provider": provider,
        "model": model,
        "usage": _usage(message.usage or Usage()),
        "stopReason": _STOP_REASONS.get(message.stop_reason, default),
        "timestamp": at,
    }
    if message.error is not None:
        fields["errorMessage"] = message.error
    return fields


def _answer_block(part: Part) -> Iterable[RecordFields]:
    match part:
        case TextPart():
            return ({"type": "text", "text": part.text},)
        case ThinkingPart(is_redacted=False):
            return ({"type": "thinking", "thinking": part.text},)
        case ToolCallPart():
            return ({"type": "toolCall", "id": part.id, "name": part.name, "arguments": part.args},)
        case _:
            return ()


def _content(parts: Iterable[Part], writing: Writing) -> list[RecordFields]:
    return [block for part in parts for block in _block(part, writing)]


def _block(part: Part, writing: Writing) -> Iterable[RecordFields]:
    match part:
        case TextPart():
            return ({"type": "text", "text": part.text},)
        case MediaPart() if is_image(part, writing.media):
            data = msgspec.to_builtins(writing.media[part.handle])  # base64, as in JSON
            return ({"type": "image", "data": data, "mimeType": part.mime_type},)
        case MediaPart():
            return ({"type": "text", "text": f"[{part.mime_type}, not kept]"},)
        case _:
            return ()


def _usage(usage: Usage) -> RecordFields:
    dollars = (usage.cost_microcents or 0) / MICROCENTS_PER_DOLLAR
    return {
        "input": usage.input_tokens,
        "output": usage.output_tokens,
        "cacheRead": usage.cache_read_tokens,
        "cacheWrite": usage.cache_write_tokens,
        "totalTokens": usage.total_tokens,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": dollars},
    }


def _provider_and_model(name: str | None) -> tuple[str, str]:
    provider, colon, model = (name or "").partition(":")
    return (provider, model) if colon else ("unknown", provider or "unknown")


# -- the other kinds of the tree


def _compaction(entry: Entry, body: Body, writing: Writing) -> RecordFields:
    assert isinstance(body, Compaction)
    # Its own id says "keeps nothing": it is never before itself on the branch.
    kept = writing.ids.get(body.first_kept or entry.id, writing.ids[entry.id])
    fields: RecordFields = {"type": "compaction", "summary": body.summary}
    if body.retained is None:
        fields["firstKeptEntryId"] = kept
    fields["tokensBefore"] = body.tokens_before or 0
    fields |= _details(body.read_files, body.modified_files)
    if body.reason == "hook":
        fields["fromHook"] = True
    if body.usage is not None:
        fields["usage"] = _usage(body.usage)
    if body.retained is not None:
        tail = [message_fields(message, entry.at, writing) for message in body.retained]
        fields["retainedTail"] = tail
    return fields


def _branch_summary(_entry: Entry, body: Body, writing: Writing) -> RecordFields:
    assert isinstance(body, BranchSummary)
    origin = ROOT if body.from_id is None else writing.ids.get(body.from_id, ROOT)
    fields: RecordFields = {"type": "branch_summary", "fromId": origin, "summary": body.summary}
    fields |= _details(body.read_files, body.modified_files)
    if body.usage is not None:
        fields["usage"] = _usage(body.usage)
    return fields


def _details(read: tuple[str, ...], modified: tuple[str, ...]) -> RecordFields:
    if not read and not modified:
        return {}
    return {"details": {"readFiles": list(read), "modifiedFiles": list(modified)}}


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> RecordFields:
    assert isinstance(body, ModelChange)
    provider, model = _provider_and_model(body.model)
    return {"type": "model_change", "provider": provider, "modelId": model}


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> RecordFields:
    assert isinstance(body, ThinkingChange)
    return {"type": "thinking_level_change", "thinkingLevel": body.level}


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> RecordFields:
    assert isinstance(body, Custom)
    return _custom(body.custom_type, body.data)


def _custom_message(entry: Entry, body: Body, writing: Writing) -> RecordFields:
    assert isinstance(body, CustomMessage)
    command = fields_of(body.details)
    if body.custom_type == BASH and command is not None:
        message: RecordFields = {"role": "bashExecution", **command, "timestamp": entry.at}
        return {"type": "message", "message": message}
    if not body.in_context:
        return _custom(body.custom_type, _plain(encode(body)))
    fields: RecordFields = {
        "type": "custom_message",
        "customType": body.custom_type,
        "content": _content(body.parts, writing),
        "display": body.is_displayed,
    }
    if body.details is not None:
        fields["details"] = body.details
    return fields


def _custom(custom_type: str, data: object) -> RecordFields:
    fields: RecordFields = {"type": "custom", "customType": custom_type}
    if data is not None:
        fields["data"] = data
    return fields


def _plain(body: bytes) -> object:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {"base64": msgspec.to_builtins(body)}


_RECORDS: dict[str, Callable[[Entry, Body, Writing], RecordFields]] = {
    Compaction.kind: _compaction,
    BranchSummary.kind: _branch_summary,
    ModelChange.kind: _model_change,
    ThinkingChange.kind: _thinking_change,
    Custom.kind: _custom_entry,
    CustomMessage.kind: _custom_message,
}
