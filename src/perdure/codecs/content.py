"""The content of a message in a foreign format: a text, or a list of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from perdure.codecs.fields import Fields, fields_of, name_in, object_in, text_in
from perdure.codecs.lines import read_line
from perdure.codecs.media import Media, unknown_part
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    UnknownPart,
    Usage,
)

KnownPart = Callable[[Fields, Media], Part | None]
"""Converts a part that is not plain text; returns None for an unknown type."""


def parts_of(content: object, media: Media, known: KnownPart) -> tuple[Part, ...] | None:
    """Return the parts of `content`; None when it is neither a text nor a list."""
    if isinstance(content, list):
        items = cast("list[object]", content)
        if len(items) == 1:  # the usual case
            return (_part(items[0], media, known),)
        return tuple([_part(item, media, known) for item in items])
    return (TextPart(content),) if isinstance(content, str) else None


def _part(item: object, media: Media, known: KnownPart) -> Part:
    fields = fields_of(item)
    if fields is not None and fields.get("type") == "text":  # the usual case
        text = fields.get("text")
        if isinstance(text, str):
            return TextPart(text)
    part = None if fields is None else known(fields, media)
    if part is None:
        return TextPart(item) if isinstance(item, str) else unknown_part(item)
    return part


def answer_of(
    parts: Iterable[Part],
    *,
    provider: str | None = None,
    model: str | None = None,
    usage: Usage | None = None,
) -> Message:
    """Return a model's answer that consists of `parts`; the model is named `provider`:`model`.

    A `usage` without tokens is left out.
    """
    parts = tuple(parts)
    is_calling = any(isinstance(part, ToolCallPart) for part in parts)
    return Message(
        "assistant",
        parts,
        model=None if model is None else f"{provider}:{model}",
        stop_reason="tool_calls" if is_calling else "stop",
        usage=usage if usage is not None and usage.total_tokens else None,
    )


def call_of(call_id: str | None, name: str | None, arguments: Fields | None) -> ToolCallPart | None:
    """Return a tool call; None if the call id or the tool name is missing."""
    if call_id is None or name is None:
        return None
    return ToolCallPart(call_id, name, arguments or {})


def chat_call(item: object) -> Part:
    """Convert a tool call of OpenAI's chat API; without an id or a name, it is an unknown part."""
    fields = fields_of(item) or {}
    function = object_in(fields, "function") or {}
    written = text_in(function, "arguments") or ""
    arguments = fields_of(read_line(written.encode(errors="replace")).value) if written else {}
    arguments = {"input": written} if arguments is None else arguments
    call = call_of(name_in(fields, "id"), name_in(function, "name"), arguments)
    return unknown_part(item) if call is None else call


def result_of(
    call_id: str,
    parts: Iterable[Part],
    *,
    is_error: bool,
    name: str | None = None,
    unreadable: str | None = None,
) -> ToolResultPart:
    """Return a tool result that consists of `parts`.

    `unreadable` is the text that replaces each part of an unknown type; if it is not given, these
    parts are omitted.
    """
    parts = tuple(parts)
    texts = [part.text for part in parts if isinstance(part, TextPart)]
    if unreadable is not None:
        texts += [unreadable for part in parts if isinstance(part, UnknownPart)]
    media = tuple(part for part in parts if isinstance(part, MediaPart))
    return ToolResultPart(call_id, "\n".join(texts), is_error=is_error, name=name, media=media)
