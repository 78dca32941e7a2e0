"""Convert pi's messages to perdure's: parts, media, usage, stop reasons.

Provider signatures, details of tool results, and the raw text of truncated calls are not converted.
The stored original of an import still contains the data that is not converted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from perdure.codecs.content import call_of, parts_of, result_of
from perdure.codecs.fields import Fields, fields_of, flag_in, name_in, number_in, object_in, text_in
from perdure.codecs.media import Media
from perdure.codecs.pi.words import BASH, STOP_REASONS, TOKENS
from perdure.codecs.shared_keys import model_name, usage_in
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, Part, TextPart, ThinkingPart

usage_of = partial(usage_in, tokens=TOKENS)
"""Reads the reported usage; returns None if all counts are zero (pi writes this after an abort)."""

UNREADABLE_MEDIA = "[an image that could not be read]"


def message_of(fields: Fields, media: Media) -> Message | CustomMessage | None:
    """Return the message in `fields`; None if its role is not in `ROLES` or it has no content."""
    role = fields.get("role")
    read = _READERS.get(role) if isinstance(role, str) else None
    return None if read is None else read(fields, media)


def custom_message_of(fields: Fields, media: Media) -> CustomMessage | None:
    """Return an extension's message, from a ``custom_message`` entry or message."""
    parts = content_of(fields, media)
    if parts is None:
        return None
    return CustomMessage(
        custom_type=name_in(fields, "customType") or "pi:custom",
        parts=parts,
        is_displayed=flag_in(fields, "display", default=True),
        details=fields.get("details"),
    )


def retained_of(items: Iterable[object], media: Media) -> tuple[Message, ...]:
    """Return the messages that a compaction retained, except messages outside the context."""
    kept: list[Message] = []
    for item in items:
        fields = fields_of(item)
        message = None if fields is None else message_of(fields, media)
        if isinstance(message, CustomMessage):
            message = Message("user", message.parts) if message.in_context else None
        if message is not None:
            kept.append(message)
    return tuple(kept)


def nested_usage(message: Fields) -> Fields | None:
    """Return the usage of a tool's own model calls; newer versions of pi write it in the result."""
    if message.get("role") != "toolResult":
        return None
    usage = object_in(message, "usage")
    return None if usage is None else {"usage": usage}


def _user(fields: Fields, media: Media) -> Message | None:
    parts = content_of(fields, media)
    return None if parts is None else Message("user", parts)


def _assistant(fields: Fields, media: Media) -> Message | None:
    parts = content_of(fields, media)
    if parts is None:
        return None
    return Message(
        "assistant",
        parts,
        model=model_name(name_in(fields, "provider"), name_in(fields, "model")),
        stop_reason=STOP_REASONS.get(text_in(fields, "stopReason")),
        usage=usage_of(object_in(fields, "usage")),
        error=name_in(fields, "errorMessage"),
    )


def _tool_result(fields: Fields, media: Media) -> Message | None:
    parts = content_of(fields, media)
    if parts is None:
        return None
    result = result_of(
        text_in(fields, "toolCallId") or "",
        parts,
        is_error=flag_in(fields, "isError"),
        name=name_in(fields, "toolName"),
        unreadable=UNREADABLE_MEDIA,
    )
    return Message("tool", (result,))


def content_of(fields: Fields, media: Media) -> tuple[Part, ...] | None:
    """Return the parts of the message in `fields`; None if it has no content."""
    return parts_of(fields.get("content"), media, _known_part)


def _known_part(fields: Fields, media: Media) -> Part | None:
    match text_in(fields, "type"):
        case "thinking":
            return _thinking(fields)
        case "toolCall":
            args = object_in(fields, "arguments")
            return call_of(text_in(fields, "id"), name_in(fields, "name"), args)
        case "image":
            return media.part(text_in(fields, "data"), name_in(fields, "mimeType"))
        case _:
            return None


def _thinking(fields: Fields) -> ThinkingPart:
    return ThinkingPart(text_in(fields, "thinking") or "", is_redacted=flag_in(fields, "redacted"))


def _summary(fields: Fields, _media: Media) -> CustomMessage | None:
    summary = text_in(fields, "summary")
    return None if summary is None else CustomMessage("pi:summary", (TextPart(summary),))


def _bash(fields: Fields, _media: Media) -> CustomMessage:
    details = {key: fields[key] for key in fields if key not in ("role", "timestamp")}
    return CustomMessage(
        custom_type=BASH,
        parts=(TextPart(_bash_text(fields)),),
        in_context=not flag_in(fields, "excludeFromContext"),
        details=details,
    )


def _bash_text(fields: Fields) -> str:
    output = text_in(fields, "output") or ""
    fence = "```"
    while fence in output:
        fence += "`"
    pieces = [f"I ran this command: `{text_in(fields, 'command') or ''}`"]
    pieces.append(f"{fence}\n{output}\n{fence}" if output else "It printed nothing.")
    pieces += _bash_notes(fields)
    return "\n\n".join(pieces)


def _bash_notes(fields: Fields) -> list[str]:
    notes: list[str] = []
    exit_code = number_in(fields, "exitCode")
    if flag_in(fields, "cancelled"):
        notes.append("It was cancelled.")
    elif exit_code:
        notes.append(f"It ended with exit code {exit_code:g}.")
    if flag_in(fields, "truncated"):
        full = name_in(fields, "fullOutputPath")
        notes.append("The output is cut" + (f"; all of it is in {full}." if full else "."))
    return notes


_READERS: dict[str, Callable[[Fields, Media], Message | CustomMessage | None]] = {
    "user": _user,
    "assistant": _assistant,
    "toolResult": _tool_result,
    "bashExecution": _bash,
    "custom": custom_message_of,
    "hookMessage": custom_message_of,
    "branchSummary": _summary,
    "compactionSummary": _summary,
}

ROLES = frozenset(_READERS)
"""The roles of pi's messages."""
