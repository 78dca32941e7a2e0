"""Convert entries to records of a pi file of version 3.

Shape of a record: the keys in pi's own order, without ``id``, ``parentId`` and ``timestamp``, which
`place_record` inserts where pi writes them. pi writes one record for each tool result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perdure.codecs.fields import Fields, fields_of
from perdure.codecs.pi.words import BASH, STOP_REASONS, TOKENS, VERSION
from perdure.codecs.protocol import WriteContext, base64_of, carried_fields, whole_args, whole_text
from perdure.codecs.shared_keys import OURS, ROOT, dollars, provider_and_model
from perdure.codecs.times import iso_time
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
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)
from perdure.session.notes import Label, SessionInfoChanged

_WORDS = {reason: word for word, reason in STOP_REASONS.items()}
_APIS = {
    "anthropic": "anthropic-messages",
    "google": "google-generative-ai",
    "openai": "openai-responses",
}
_OTHER_API = "openai-completions"
_IDS_LAST = ("custom", "custom_message")


def header(session: str, at: int, cwd: str | None, parent: str | None) -> Fields:
    """Return the first record; `parent` is the file of the session from which it was forked."""
    fields: Fields = {
        "type": "session",
        "version": VERSION,
        "id": session,
        "timestamp": iso_time(at),
        "cwd": cwd or "",
    }
    return fields if parent is None else {**fields, "parentSession": parent}


def place_record(record: Mapping[str, object], id: str, parent: str | None, at: int) -> Fields:
    """Return `record` with its id, parent and time where pi writes them."""
    place = {"id": id, "parentId": parent, "timestamp": iso_time(at)}
    if record["type"] in _IDS_LAST:
        return {**record, **place}
    return {"type": record["type"], **place, **record}


def records_of(entry: Entry, body: Body, writing: WriteContext) -> list[Fields]:
    """Return the records for `entry`, at least one; each record is the parent of the next one."""
    made = [] if entry.id in writing.undone else _records(entry, body, writing)
    return made or [custom(OURS + entry.kind, carried_fields(entry, is_escaped=False))]


def _records(entry: Entry, body: Body, writing: WriteContext) -> list[Fields]:
    match body:
        case Message(role="user" | "assistant" | "tool"):
            messages = _messages(body, entry, writing)
            return [{"type": "message", "message": message} for message in messages]
        case Message():
            return [_shown_fields(OURS + body.role, body.parts, writing, is_displayed=False)]
        case Compaction():
            return [_compaction(entry, body, writing)]
        case BranchSummary():
            return [_branch_summary(body, writing)]
        case CustomMessage():
            return _custom_message(entry, body, writing)
        case _:
            record = _record(entry, body, writing)
            return [] if record is None else [record]


def _record(entry: Entry, body: Body, writing: WriteContext) -> Fields | None:
    """Return the record for an entry without a message; None if pi has no such record."""
    match body:
        case ModelChange():
            provider, name = provider_and_model(body.model)
            return {"type": "model_change", "provider": provider, "modelId": name}
        case ThinkingChange():
            return {"type": "thinking_level_change", "thinkingLevel": body.level}
        case Custom():
            return custom(body.custom_type, body.data)
        case Label() if (target := writing.target(entry)) is not None:
            return label(target, body.text)
        case SessionInfoChanged(title=str(name)):
            return title(name)
        case _:
            return None


def _messages(message: Message, entry: Entry, writing: WriteContext) -> list[Fields]:
    """Return `message` as messages of pi; each tool result becomes a message of its own."""
    if message.role == "assistant":
        name = message.model or writing.model(entry.id)
        return [answer(message, entry.at, name, writing)]
    if message.role == "tool":
        results = (part for part in message.parts if isinstance(part, ToolResultPart))
        return [_result(part, entry.at, writing) for part in results]
    content = _content(message.parts, writing)
    return [{"role": "user", "content": content, "timestamp": entry.at}]


# -- messages


def answer(message: Message, at: int, name: str | None, writing: WriteContext) -> Fields:
    """Return an assistant message that the model `name` wrote."""
    provider, model = provider_and_model(name)
    default = "toolUse" if message.tool_calls else "stop"
    reason = message.stop_reason
    fields: Fields = {
        "role": "assistant",
        "content": [block for part in message.parts for block in _answer_blocks(part, writing)],
        "api": _APIS.get(provider, _OTHER_API),
        "provider": provider,
        "model": model,
        "usage": usage(message.usage or Usage()),
        "stopReason": default if reason is None else _WORDS.get(reason, "error"),
        "timestamp": at,
    }
    return fields if message.error is None else {**fields, "errorMessage": message.error}


def _answer_blocks(part: Part, writing: WriteContext) -> list[Fields]:
    match part:
        case TextPart():
            return [_text(part.text)]
        case ThinkingPart(is_redacted=False):
            return [{"type": "thinking", "thinking": part.text}]
        case ToolCallPart():
            args = whole_args(part, writing)
            return [{"type": "toolCall", "id": part.id, "name": part.name, "arguments": args}]
        case _:
            return []


def _text(text: str) -> Fields:
    return {"type": "text", "text": text}


def _result(part: ToolResultPart, at: int, writing: WriteContext) -> Fields:
    return {
        "role": "toolResult",
        "toolCallId": part.call_id,
        "toolName": part.name or "",
        "content": _content((TextPart(whole_text(part, writing)), *part.media), writing),
        "isError": part.is_error,
        "timestamp": at,
    }


def _content(parts: Iterable[Part], writing: WriteContext) -> list[Fields]:
    return [block for part in parts for block in _block(part, writing)]


def _block(part: Part, writing: WriteContext) -> list[Fields]:
    match part:
        case TextPart():
            return [_text(part.text)]
        case MediaPart():
            data = base64_of(part, writing) if is_image(part) else None
            if data is None:
                return [_text(f"[{part.mime_type}, not kept]")]
            return [{"type": "image", "data": data, "mimeType": part.mime_type}]
        case _:
            return []


def is_image(part: MediaPart) -> bool:
    """Whether `part` is an image; if other media were written, pi would send them as images."""
    return part.mime_type.startswith("image/")


def is_written(part: Part, role: str) -> bool:
    """Whether `part` is written into a message of the role `role`."""
    if role == "assistant":
        is_thought = isinstance(part, ThinkingPart) and not part.is_redacted
        return is_thought or isinstance(part, TextPart | ToolCallPart)
    if role == "tool":
        return isinstance(part, ToolResultPart)
    return isinstance(part, TextPart | MediaPart)


def usage(usage: Usage) -> Fields:
    """Return `usage` as pi writes it; all costs are 0, except the total if it is known."""
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


# -- other kinds


def custom(custom_type: str, data: object) -> Fields:
    """Return a record of a custom type, which is never part of a context."""
    fields: Fields = {"type": "custom", "customType": custom_type}
    return fields if data is None else {**fields, "data": data}


def title(title: str) -> Fields:
    """Return the record that names the session."""
    return {"type": "session_info", "name": title}


def label(target: str, text: str | None) -> Fields:
    """Return the record that labels the record `target`; without `text` it removes the label."""
    fields: Fields = {"type": "label", "targetId": target}
    return {**fields, "label": text} if text else fields


def _shown_fields(
    custom_type: str, parts: Iterable[Part], writing: WriteContext, *, is_displayed: bool
) -> Fields:
    """Return a message whose role pi does not have, as a record that pi includes in its context."""
    return {
        "type": "custom_message",
        "customType": custom_type,
        "content": _content(parts, writing),
        "display": is_displayed,
    }


def _summary(body: Compaction | BranchSummary) -> Fields:
    """Return the files and the usage that a summary contains, if it contains any."""
    fields: Fields = {}
    if body.read_files or body.modified_files:
        files = {"readFiles": list(body.read_files), "modifiedFiles": list(body.modified_files)}
        fields["details"] = files
    if isinstance(body, Compaction) and body.reason == "hook":
        fields["fromHook"] = True
    if body.usage is not None:
        fields["usage"] = usage(body.usage)
    return fields


def _compaction(entry: Entry, body: Compaction, writing: WriteContext) -> Fields:
    fields: Fields = {"type": "compaction", "summary": body.summary}
    if body.retained is None:
        kept = None if body.first_kept is None else writing.first(body.first_kept)
        # Its own id means "keeps nothing": it is never before itself on the branch.
        fields["firstKeptEntryId"] = kept or writing.own
    fields["tokensBefore"] = body.tokens_before or 0
    fields |= _summary(body)
    if body.retained is not None:
        fields["retainedTail"] = [
            tail for message in body.retained for tail in _messages(message, entry, writing)
        ]
    return fields


def _branch_summary(body: BranchSummary, writing: WriteContext) -> Fields:
    origin = None if body.from_id is None else writing.last(body.from_id)
    said: Fields = {"fromId": origin or ROOT, "summary": body.summary}
    return {"type": "branch_summary", **said, **_summary(body)}


def _custom_message(entry: Entry, body: CustomMessage, writing: WriteContext) -> list[Fields]:
    command = fields_of(body.details)
    if body.custom_type == BASH and command is not None:
        message: Fields = {"role": "bashExecution", **command, "timestamp": entry.at}
        return [{"type": "message", "message": message}]
    if not body.in_context:
        return []
    shown = _shown_fields(body.custom_type, body.parts, writing, is_displayed=body.is_displayed)
    return [shown if body.details is None else {**shown, "details": body.details}]
