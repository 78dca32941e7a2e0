"""What pi's records mean."""

from __future__ import annotations

from collections.abc import Callable

from perdure.codecs.alike import OURS
from perdure.codecs.fields import (
    Fields,
    count_in,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
    texts_in,
)
from perdure.codecs.pi.words import BASH, NO_MODEL, STOP_REASONS, TOKENS
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
)
from perdure.session.notes import ImportedRecord, Label
from perdure.stores.jsonl.dialects.form import (
    Said,
    media_of,
    numbered,
    reference,
    titled,
    unknown_part,
    unknown_record,
    usage_from,
)

_PLACE = ("id", "timestamp", "parentId", "type", "perdure")


def said_by(fields: Fields) -> Said:
    """What the record `fields` means; what nobody here knows is a link of its branch."""
    read = _READERS.get(text_in(fields, "type") or "")
    said = None if read is None else read(fields)
    return unknown_record("pi", fields, _PLACE) if said is None else said


def _read_message(fields: Fields) -> Said | None:
    message = object_in(fields, "message") or {}
    role = text_in(message, "role")
    if role == "bashExecution":
        return _bash(message)
    found = _parts(message)
    if found is None:
        return None
    parts, media = found
    match role:
        case "user":
            return Said(Message("user", parts), media=media)
        case "assistant":
            return Said(_answer_of(message, parts), media=media)
        case "toolResult":
            return Said(Message("tool", (_result_of(message, parts),)), media=media)
        case "custom" | "hookMessage":
            return Said(_custom_message_of(message, parts), media=media)
        case _:
            return None


def _answer_of(message: Fields, parts: tuple[Part, ...]) -> Message:
    names = (name_in(message, "provider"), name_in(message, "model"))
    model = ":".join(name for name in names if name)
    return Message(
        "assistant",
        parts,
        model=None if model == f"{NO_MODEL}:{NO_MODEL}" else model or None,
        stop_reason=STOP_REASONS.get(text_in(message, "stopReason")),
        usage=usage_from(object_in(message, "usage"), TOKENS),
        error=name_in(message, "errorMessage"),
    )


def _result_of(message: Fields, parts: tuple[Part, ...]) -> ToolResultPart:
    return ToolResultPart(
        text_in(message, "toolCallId") or "",
        "\n".join(part.text for part in parts if isinstance(part, TextPart)),
        is_error=message.get("isError") is True,
        name=name_in(message, "toolName"),
        media=tuple(part for part in parts if isinstance(part, MediaPart)),
    )


def _custom_message_of(fields: Fields, parts: tuple[Part, ...]) -> CustomMessage:
    return CustomMessage(
        name_in(fields, "customType") or "pi:custom",
        parts,
        is_displayed=fields.get("display") is not False,
        details=fields.get("details"),
    )


def _bash(message: Fields) -> Said:
    details = {key: message[key] for key in message if key not in ("role", "timestamp")}
    output = text_in(message, "output") or ""
    text = f"I ran this command: `{text_in(message, 'command') or ''}`\n\n```\n{output}\n```"
    code = number_in(message, "exitCode")
    if message.get("cancelled") is True:
        text += "\n\nIt was cancelled."
    elif code:
        text += f"\n\nIt ended with exit code {code:g}."
    if message.get("truncated") is True:
        text += "\n\nThe output is cut."
    is_private = message.get("excludeFromContext") is True
    body = CustomMessage(BASH, (TextPart(text),), in_context=not is_private, details=details)
    return Said(body)


def _parts(fields: Fields) -> tuple[tuple[Part, ...], tuple[bytes, ...]] | None:
    text = text_in(fields, "content")
    if text is not None:
        return (TextPart(text),), ()
    items = list_in(fields, "content")
    if items is None:
        return None
    parts: list[Part] = []
    media: list[bytes] = []
    for item in items:
        block = object_in({"item": item}, "item")
        if block is None:
            parts += [TextPart(item)] if isinstance(item, str) else []
        elif text_in(block, "type") == "image":
            found = media_of(text_in(block, "data") or "-", name_in(block, "mimeType"))
            parts.append(found[0] if found else unknown_part(block))
            media += [found[1]] if found else []
        else:
            parts.append(_part(block))
    return tuple(parts), tuple(media)


def _part(block: Fields) -> Part:
    match text_in(block, "type"):
        case "text" if (text := text_in(block, "text")) is not None:
            return TextPart(text)
        case "thinking":
            is_redacted = block.get("redacted") is True
            return ThinkingPart(text_in(block, "thinking") or "", is_redacted=is_redacted)
        case "toolCall" if (name := name_in(block, "name")) is not None:
            args = object_in(block, "arguments") or {}
            return ToolCallPart(text_in(block, "id") or "", name, args)
        case _:
            return unknown_part(block)


def _read_compaction(fields: Fields) -> Said:
    files = object_in(fields, "details") or {}
    tail = list_in(fields, "retainedTail")
    kept = [] if tail is None else [_read_message({"message": item}) for item in tail]
    found = [said for said in kept if said is not None]
    body = Compaction(
        summary=text_in(fields, "summary") or "",
        tokens_before=count_in(fields, "tokensBefore") or None,
        reason="hook" if fields.get("fromHook") is True else "manual",
        read_files=texts_in(files, "readFiles"),
        modified_files=texts_in(files, "modifiedFiles"),
        retained=None if tail is None else tuple(_as_messages(found)),
    )
    media = tuple(content for said in found for content in said.media)
    return Said(body, references=_kept(fields), media=media)


def _kept(fields: Fields) -> tuple[tuple[str, str], ...]:
    index = number_in(fields, "firstKeptEntryIndex")  # version 1 has no ids
    if index is not None and name_in(fields, "firstKeptEntryId") is None:
        return (("first_kept", numbered(int(index))),)
    return reference("first_kept", fields, "firstKeptEntryId")


def _as_messages(said: list[Said]) -> list[Message]:
    messages: list[Message] = []
    for each in said:
        if isinstance(each.body, Message):
            messages.append(each.body)
        elif isinstance(each.body, CustomMessage) and each.body.in_context:
            messages.append(Message("user", each.body.parts))
    return messages


def _read_branch_summary(fields: Fields) -> Said:
    files = object_in(fields, "details") or {}
    body = BranchSummary(
        summary=text_in(fields, "summary") or "",
        read_files=texts_in(files, "readFiles"),
        modified_files=texts_in(files, "modifiedFiles"),
    )
    return Said(body, references=reference("from_id", fields, "fromId"))


def _read_model_change(fields: Fields) -> Said | None:
    provider, model = name_in(fields, "provider"), name_in(fields, "modelId")
    names = (None if provider == NO_MODEL else provider, model)
    body = ":".join(name for name in names if name)
    return Said(ModelChange(body)) if body else None


def _read_thinking_change(fields: Fields) -> Said:
    return Said(ThinkingChange(text_in(fields, "thinkingLevel") or "off"))


def _read_custom(fields: Fields) -> Said:
    custom_type = name_in(fields, "customType") or "pi:custom"
    if custom_type.startswith(OURS):
        return Said(ImportedRecord("pi", custom_type))
    return Said(Custom(custom_type, fields.get("data")))


def _read_custom_message(fields: Fields) -> Said | None:
    found = _parts(fields)
    if found is None:
        return None
    parts, media = found
    custom_type = name_in(fields, "customType")
    if custom_type == f"{OURS}context":
        return Said(Message("context", parts), media=media)
    if custom_type == f"{OURS}system":
        return Said(Message("system", parts), media=media)
    return Said(_custom_message_of(fields, parts), media=media)


def _read_label(fields: Fields) -> Said:
    return Said(Label(name_in(fields, "label")), about=name_in(fields, "targetId"))


def _read_second_header(_fields: Fields) -> Said:
    return Said(ImportedRecord("pi", "session"))


_READERS: dict[str, Callable[[Fields], Said | None]] = {
    "message": _read_message,
    "compaction": _read_compaction,
    "branch_summary": _read_branch_summary,
    "model_change": _read_model_change,
    "thinking_level_change": _read_thinking_change,
    "custom": _read_custom,
    "custom_message": _read_custom_message,
    "label": _read_label,
    "session_info": titled,
    "session": _read_second_header,
}
