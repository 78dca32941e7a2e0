"""pi's session files of version 3: the words of their records, and the records all write alike.

pi has one record for each tool result, names what it refers to in camel case, and counts what a
call cost in dollars. Ids, media and what pi has no record for are for whoever writes a file.
"""

from __future__ import annotations

from collections.abc import Mapping

from perdure.codecs.alike import dollars
from perdure.codecs.fields import Fields
from perdure.codecs.times import iso_time
from perdure.session.kinds import BranchSummary, Compaction
from perdure.session.messages import (
    Message,
    Part,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

VERSION = 3
BASH = "bash_execution"
"""Custom type, here, of a shell command that the person ran."""

NO_MODEL = "unknown"
"""Provider, or model, where none is known."""

TOKENS = ("input", "output", "cacheRead", "cacheWrite")
"""What tokens are counted by, in the order of `Usage`."""

STOP_REASONS: Mapping[str | None, StopReason] = {
    "stop": "stop",
    "length": "length",
    "toolUse": "tool_calls",
    "error": "error",
    "aborted": "aborted",
}
"""pi's stop reasons as ours; what pi has no word for is an ``error`` there."""

_WORDS = {reason: word for word, reason in STOP_REASONS.items()}
_APIS = {
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
    "openai": "openai-responses",
}
_OTHER_API = "openai-completions"
_IDS_LAST = ("custom", "custom_message")


def header(session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
    """The first record; `parent` is the file of the session it was forked from."""
    fields: Fields = {
        "type": "session",
        "version": VERSION,
        "id": session,
        "timestamp": iso_time(at),
        "cwd": cwd or "",
    }
    return fields if parent is None else {**fields, "parentSession": parent}


def placed(record: Mapping[str, object], id: str, parent: str | None, at: int) -> Fields:
    """`record` with its id, parent and time where pi puts them."""
    place = {"id": id, "parentId": parent, "timestamp": iso_time(at)}
    if record["type"] in _IDS_LAST:
        return {**record, **place}
    return {"type": record["type"], **place, **record}


def provider_and_model(name: str | None) -> tuple[str, str]:
    """The two words that pi has for the model `name`."""
    provider, colon, model = (name or "").partition(":")
    return (provider, model) if colon else (NO_MODEL, provider or NO_MODEL)


def answer(message: Message, at: int) -> Fields:
    """A message of the assistant."""
    provider, model = provider_and_model(message.model)
    default = "toolUse" if message.tool_calls else "stop"
    reason = message.stop_reason
    fields: Fields = {
        "role": "assistant",
        "content": [block for part in message.parts for block in answer_blocks(part)],
        "api": _APIS.get(provider, _OTHER_API),
        "provider": provider,
        "model": model,
        "usage": usage(message.usage or Usage()),
        "stopReason": default if reason is None else _WORDS.get(reason, "error"),
        "timestamp": at,
    }
    return fields if message.error is None else {**fields, "errorMessage": message.error}


def answer_blocks(part: Part) -> list[Fields]:
    """What stands for `part` in a message of the assistant."""
    match part:
        case TextPart():
            return [text_block(part.text)]
        case ThinkingPart(is_redacted=False):
            return [{"type": "thinking", "thinking": part.text}]
        case ToolCallPart():
            return [{"type": "toolCall", "id": part.id, "name": part.name, "arguments": part.args}]
        case _:
            return []


def text_block(text: str) -> Fields:
    """A text in a message."""
    return {"type": "text", "text": text}


def result(part: ToolResultPart, content: list[Fields], at: int) -> Fields:
    """The message of a tool's result; `content` is what the tool gave back."""
    return {
        "role": "toolResult",
        "toolCallId": part.call_id,
        "toolName": part.name or "",
        "content": content,
        "isError": part.is_error,
        "timestamp": at,
    }


def user(content: list[Fields], at: int) -> Fields:
    """A message of the person."""
    return {"role": "user", "content": content, "timestamp": at}


def usage(usage: Usage) -> Fields:
    """Usage as pi's; what a call cost is known as a whole only."""
    counts = (
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
    )
    return {
        **dict(zip(TOKENS, counts, strict=True)),
        "totalTokens": usage.total_tokens,
        "cost": {**dict.fromkeys(TOKENS, 0), "total": dollars(usage)},
    }


def details(body: Compaction | BranchSummary) -> Fields:
    """The files that a summary tells of; nothing where there are none."""
    if not body.read_files and not body.modified_files:
        return {}
    files = {"readFiles": list(body.read_files), "modifiedFiles": list(body.modified_files)}
    return {"details": files}


def model_change(model: str) -> Fields:
    """The record of a change to `model`."""
    provider, name = provider_and_model(model)
    return {"type": "model_change", "provider": provider, "modelId": name}


def thinking_change(level: str) -> Fields:
    """The record of a change to the thinking level `level`."""
    return {"type": "thinking_level_change", "thinkingLevel": level}


def custom(custom_type: str, data: object) -> Fields:
    """A record outside every context."""
    fields: Fields = {"type": "custom", "customType": custom_type}
    return fields if data is None else {**fields, "data": data}


def custom_message(
    custom_type: str, content: list[Fields], *, is_displayed: bool, details: object = None
) -> Fields:
    """A message of an extension."""
    fields: Fields = {
        "type": "custom_message",
        "customType": custom_type,
        "content": content,
        "display": is_displayed,
    }
    return fields if details is None else {**fields, "details": details}
