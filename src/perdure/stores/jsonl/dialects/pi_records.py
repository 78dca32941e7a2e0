"""Entries as the records pi would have written for them."""

from __future__ import annotations

from collections.abc import Callable

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
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import Label, SessionInfoChanged
from perdure.stores.jsonl.dialects.form import (
    OURS,
    ROOT,
    Writing,
    base64_of,
    dollars_of,
)
from perdure.stores.jsonl.lines import (
    Fields,
)

TOKENS = ("input", "output", "cacheRead", "cacheWrite")
_APIS = {
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
    "openai": "openai-responses",
}
STOPS: dict[StopReason, str] = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "toolUse",
    "aborted": "aborted",
    "error": "error",
}
NO_MODEL = "unknown"


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
        return {"type": "message", "message": _said_by("user", content, entry.at)}
    if body.role == "assistant":
        return {"type": "message", "message": _answer(body, entry.at)}
    return _shown(f"{OURS}{body.role}", body.parts, writing, is_displayed=False)


def _said_by(role: str, content: list[Fields], at: int) -> Fields:
    return {"role": role, "content": content, "timestamp": at}


def _results(entry: Entry, body: Message, writing: Writing) -> list[Fields]:
    return [
        {"type": "message", "message": _result(part, entry.at, writing)}
        for part in body.parts
        if isinstance(part, ToolResultPart)
    ]


def _result(part: ToolResultPart, at: int, writing: Writing) -> Fields:
    return {
        "role": "toolResult",
        "toolCallId": part.call_id,
        "toolName": part.name or "",
        "content": _content((TextPart(part.text), *part.media), writing),
        "isError": part.is_error,
        "timestamp": at,
    }


def _answer(message: Message, at: int) -> Fields:
    provider, colon, model = (message.model or "").partition(":")
    default = "toolUse" if message.tool_calls else "stop"
    stop = STOPS.get(message.stop_reason, "error") if message.stop_reason else default
    fields: Fields = {
        "role": "assistant",
        "content": [block for part in message.parts for block in _answer_block(part)],
        "api": _APIS.get(provider, "openai-completions"),
        "provider": provider if colon else NO_MODEL,
        "model": model if colon else provider or NO_MODEL,
        "usage": _usage(message.usage or Usage()),
        "stopReason": stop,
        "timestamp": at,
    }
    return fields if message.error is None else {**fields, "errorMessage": message.error}


def _answer_block(part: Part) -> list[Fields]:
    match part:
        case TextPart():
            return [{"type": "text", "text": part.text}]
        case ThinkingPart(is_redacted=False):
            return [{"type": "thinking", "thinking": part.text}]
        case ToolCallPart():
            call = {"id": part.id, "name": part.name, "arguments": part.args}
            return [{"type": "toolCall", **call}]
        case _:
            return []


def _content(parts: tuple[Part, ...], writing: Writing) -> list[Fields]:
    return [block for part in parts for block in _block(part, writing)]


def _block(part: Part, writing: Writing) -> list[Fields]:
    match part:
        case TextPart():
            return [{"type": "text", "text": part.text}]
        case MediaPart():
            data = base64_of(part, writing)
            if data is None or not part.mime_type.startswith("image/"):
                return [{"type": "text", "text": f"[{part.mime_type}, not shown]"}]
            return [{"type": "image", "data": data, "mimeType": part.mime_type}]
        case _:
            return []


def _usage(usage: Usage) -> Fields:
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )
    cost = {**dict.fromkeys(TOKENS, 0), **dollars_of(usage)}
    tokens = dict(zip(TOKENS, counts, strict=True))
    return {**tokens, "totalTokens": usage.total_tokens, "cost": cost}


def _shown(
    custom_type: str, parts: tuple[Part, ...], writing: Writing, *, is_displayed: bool
) -> Fields:
    return {
        "type": "custom_message",
        "customType": custom_type,
        "content": _content(parts, writing),
        "display": is_displayed,
    }


def _compaction(entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, Compaction):
        return None
    fields: Fields = {"type": "compaction", "summary": body.summary}
    if body.retained is None:
        kept = None if body.first_kept is None else writing.id(body.first_kept)
        # Its own id says "keeps nothing": it is never before itself on the branch.
        fields["firstKeptEntryId"] = kept or writing.own
    fields["tokensBefore"] = body.tokens_before or 0
    fields |= _details(body)
    if body.reason == "hook":
        fields["fromHook"] = True
    if body.retained is not None:
        fields["retainedTail"] = [
            tail for message in body.retained for tail in _retained(message, entry.at, writing)
        ]
    return fields


def _retained(message: Message, at: int, writing: Writing) -> list[Fields]:
    if message.role == "assistant":
        return [_answer(message, at)]
    results = [part for part in message.parts if isinstance(part, ToolResultPart)]
    if results:
        return [_result(part, at, writing) for part in results]
    return [_said_by("user", _content(message.parts, writing), at)]


def _branch_summary(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, BranchSummary):
        return None
    origin = None if body.from_id is None else writing.id(body.from_id)
    fields: Fields = {"type": "branch_summary", "fromId": origin or ROOT, "summary": body.summary}
    return {**fields, **_details(body)}


def _details(body: Compaction | BranchSummary) -> Fields:
    if not body.read_files and not body.modified_files:
        return {}
    files = {"readFiles": list(body.read_files), "modifiedFiles": list(body.modified_files)}
    return {"details": files}


def _model_change(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    if not isinstance(body, ModelChange):
        return None
    provider, colon, model = body.model.partition(":")
    names = (provider, model) if colon else (NO_MODEL, body.model)
    return {"type": "model_change", "provider": names[0], "modelId": names[1]}


def _thinking_change(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    if not isinstance(body, ThinkingChange):
        return None
    return {"type": "thinking_level_change", "thinkingLevel": body.level}


def _custom_entry(_entry: Entry, body: Body, _writing: Writing) -> Fields | None:
    if not isinstance(body, Custom):
        return None
    fields: Fields = {"type": "custom", "customType": body.custom_type}
    return fields if body.data is None else {**fields, "data": body.data}


def _custom_message(_entry: Entry, body: Body, writing: Writing) -> Fields | None:
    if not isinstance(body, CustomMessage) or not body.in_context:
        return None
    fields = _shown(body.custom_type, body.parts, writing, is_displayed=body.is_displayed)
    return fields if body.details is None else {**fields, "details": body.details}


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
