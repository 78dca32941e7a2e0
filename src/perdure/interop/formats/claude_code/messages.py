"""Convert Claude Code's messages: content blocks, tool results, media, usage, stop reasons.

A line contains one content block of an answer (in older versions all blocks), or user text, or a
tool's result. Signatures, encrypted reasoning and the display form of tool results
(``toolUseResult``) are only in the stored copy of the imported file.
"""

from __future__ import annotations

from perdure.codecs.content import call_of, parts_of, result_of
from perdure.codecs.fields import Fields, counts_in, flag_in, name_in, object_in, text_in
from perdure.codecs.media import Media
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    StopReason,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

PROVIDER = "anthropic"
SYNTHETIC = "<synthetic>"
"""Model name of the answers that Claude Code wrote itself."""
UNREADABLE = "[content of a kind that could not be read]"

_COUNTED = (
    *("input_tokens", "output_tokens"),
    *("cache_read_input_tokens", "cache_creation_input_tokens"),
)
_STOP_REASONS: dict[str | None, StopReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}


WRITTEN_HERE = "msg_"
"""Prefix of the ids of answers that perdure wrote; the rest is the id of the answer's record."""


def content_of(message: Fields, media: Media) -> tuple[Part, ...] | None:
    """Return the parts of `message`; None if it has no content."""
    return parts_of(message.get("content"), media, known_part)


def assistant_of(record: Fields, message: Fields, parts: tuple[Part, ...]) -> Message:
    """Return the answer, or the block of an answer, in a record of type ``assistant``.

    The usage of the returned message counts the whole answer. Claude Code writes a block when the
    block is complete, mostly before the stop reason is known. If the stop reason is missing, it is
    derived from the content of the block. An answer in a file that perdure wrote for Claude Code
    gets no usage, because the original session already counts this usage.
    """
    is_ours = text_in(message, "id") == f"{WRITTEN_HERE}{text_in(record, 'uuid')}"
    has_failed = flag_in(record, "isApiErrorMessage")
    model = _model(message)
    reason = _STOP_REASONS.get(text_in(message, "stop_reason"))
    return Message(
        "assistant",
        parts,
        model=model,
        stop_reason="error" if has_failed else reason or _implied_stop(parts),
        usage=_usage(message) if model and not is_ours else None,
        error=Message("assistant", parts).text or None if has_failed else None,
    )


def said_by_person(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return the parts of a ``user`` record that are not tool results."""
    return tuple([part for part in parts if not isinstance(part, ToolResultPart)])


def said_by_tools(parts: tuple[Part, ...]) -> tuple[ToolResultPart, ...]:
    """Return the tool results of a ``user`` record."""
    return tuple([part for part in parts if isinstance(part, ToolResultPart)])


def _implied_stop(parts: tuple[Part, ...]) -> StopReason:
    return "tool_calls" if any(isinstance(part, ToolCallPart) for part in parts) else "stop"


def _model(message: Fields) -> str | None:
    model = name_in(message, "model")
    return None if model is None or model == SYNTHETIC else f"{PROVIDER}:{model}"


def _usage(message: Fields) -> Usage | None:
    fields = object_in(message, "usage") or {}
    counts = counts_in(fields, _COUNTED)
    return Usage(*counts) if any(counts) else None


def known_part(fields: Fields, media: Media) -> Part | None:
    """Convert a content block of Anthropic's API to a part; return None for an unknown type."""
    match text_in(fields, "type"):
        case "thinking":
            return ThinkingPart(text_in(fields, "thinking") or "")
        case "redacted_thinking":
            return ThinkingPart("", is_redacted=True)
        case "tool_use":
            return call_of(
                name_in(fields, "id"), name_in(fields, "name"), object_in(fields, "input")
            )
        case "tool_result":
            return _tool_result(fields, media)
        case "image" | "document":
            return _media(fields, media)
        case _:
            return None


def _media(fields: Fields, media: Media) -> MediaPart | None:
    source = object_in(fields, "source") or {}
    if text_in(source, "type") != "base64":
        return None
    return media.part(text_in(source, "data"), name_in(source, "media_type"))


def _tool_result(fields: Fields, media: Media) -> ToolResultPart | None:
    call_id = name_in(fields, "tool_use_id")
    if call_id is None:
        return None
    return result_of(
        call_id,
        content_of(fields, media) or (),
        is_error=flag_in(fields, "is_error"),
        unreadable=UNREADABLE,
    )
