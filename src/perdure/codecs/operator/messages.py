"""Convert Operator's messages to perdure's: parts, media, usage, stop reasons.

Provider signatures, and the metadata of tool calls and results, are only in the stored original of
the import. `meta_of` reads the metadata that a gateway adds to a message (attachments, reactions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import cast

from perdure.codecs.content import call_of
from perdure.codecs.fields import Fields, fields_of, flag_in, list_in, name_in, object_in, text_in
from perdure.codecs.media import Media, unknown_part
from perdure.codecs.operator.words import NAME, STOP_REASONS, TOKENS
from perdure.codecs.shared_keys import usage_in
from perdure.session.kinds import CustomMessage
from perdure.session.messages import (
    MediaPart,
    Message,
    Part,
    Role,
    TextPart,
    ThinkingPart,
    ToolResultPart,
)

usage_of = partial(usage_in, tokens=TOKENS)
"""Reads the reported usage; returns None if nothing was counted."""

SUMMARY_ROLES = frozenset({"branch_summary", "compaction_summary"})
"""Roles of messages that Operator creates for a context but never stores in its own files."""

_ROLES: dict[str | None, Role] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "system": "system",
}


def message_of(fields: Fields, media: Media) -> Message | CustomMessage | None:
    """Return the message in `fields`; None if its role is unknown or it has no content."""
    parts = content_of(fields, media)
    if parts is None:
        return None
    role = text_in(fields, "role")
    if role in SUMMARY_ROLES or role == "custom":
        return CustomMessage(name_in(fields, "custom_type") or f"operator:{role}", parts)
    known = _ROLES.get(role)
    if known is None:
        return None
    return _assistant(fields, parts) if known == "assistant" else Message(known, parts)


def content_of(fields: Fields, media: Media) -> tuple[Part, ...] | None:
    """Return the parts of a message (key ``contents``) or an extension's message (``content``)."""
    for key in ("contents", "content"):
        found = fields.get(key)
        if isinstance(found, list):
            items = cast("list[object]", found)
            if len(items) == 1:  # the usual case
                return _parts_of(items[0], media)
            return tuple([part for item in items for part in _parts_of(item, media)])
        if isinstance(found, str):
            return (TextPart(found),)
    return None


def meta_of(fields: Fields) -> Fields | None:
    """Return the metadata of a message in a record: attachments, reactions, `reply_to`."""
    meta = object_in(fields, "meta")
    if not meta:
        return None
    kept = {key: value for key, value in meta.items() if value is not None and value != []}
    return kept or None


def _assistant(fields: Fields, parts: tuple[Part, ...]) -> Message:
    return Message(
        "assistant",
        parts,
        stop_reason=STOP_REASONS.get(text_in(fields, "stop_reason")),
        usage=usage_of(object_in(fields, "usage")),
        error=name_in(fields, "error"),
    )


def _parts_of(item: object, media: Media) -> tuple[Part, ...]:
    fields = fields_of(item)
    if fields is not None and fields.get("type") == "text":  # the usual case
        text = fields.get("content")
        if isinstance(text, str):
            return (TextPart(text),)
    read = None if fields is None else _READERS.get(text_in(fields, "type") or "")
    found = None if fields is None or read is None else read(fields, media)
    if found is not None:
        return found
    return (TextPart(item),) if isinstance(item, str) else (unknown_part(item),)


def _text(fields: Fields, _media: Media) -> tuple[Part, ...] | None:
    text = text_in(fields, "content")
    if text is None:
        text = text_in(fields, "text")
    return None if text is None else (TextPart(text),)


def _thinking(fields: Fields, _media: Media) -> tuple[Part, ...]:
    return (ThinkingPart(text_in(fields, "content") or ""),)


def _images(fields: Fields, media: Media) -> tuple[Part, ...] | None:
    """Return the images of one part: base64 data, or addresses of images stored elsewhere."""
    images = list_in(fields, "images")
    return None if images is None else tuple(_image(each, media) for each in images)


def _image(item: object, media: Media) -> Part:
    found: MediaPart | None = media.from_address(item) if isinstance(item, str) else None
    return unknown_part({"type": "image", "images": [item]}) if found is None else found


def _audio(fields: Fields, media: Media) -> tuple[Part, ...] | None:
    found = media.from_address(name_in(fields, "audio"))
    return None if found is None else (found,)


def _tool_call(fields: Fields, _media: Media) -> tuple[Part, ...] | None:
    call = call_of(name_in(fields, "id"), name_in(fields, "name"), object_in(fields, "args"))
    return None if call is None else (call,)


def _tool_result(fields: Fields, _media: Media) -> tuple[Part, ...] | None:
    call_id = name_in(fields, "id")
    if call_id is None:
        return None
    text, is_error = text_in(fields, "content") or "", flag_in(fields, "is_error")
    tool = name_in(object_in(fields, "metadata") or {}, NAME)
    return (ToolResultPart(call_id, text, is_error=is_error, name=tool),)


_READERS: dict[str, Callable[[Fields, Media], tuple[Part, ...] | None]] = {
    "text": _text,
    "thinking": _thinking,
    "image": _images,
    "audio": _audio,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
}
