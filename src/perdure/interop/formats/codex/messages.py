"""Convert Codex's response items to messages: text, reasoning, calls, results, usage.

A response item is a message, a piece of reasoning, a tool call or its result; each item becomes one
entry. Only the stored copy of the imported file contains encrypted reasoning and snapshots of the
workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from perdure.codecs.content import call_of, parts_of, result_of
from perdure.codecs.fields import (
    Fields,
    count_in,
    fields_of,
    flag_in,
    list_in,
    name_in,
    number_in,
    object_in,
    text_in,
)
from perdure.codecs.lines import read_line
from perdure.codecs.media import Media
from perdure.session.codec import encode
from perdure.session.kinds import CustomMessage
from perdure.session.messages import Message, Part, TextPart, ThinkingPart, ToolResultPart, Usage

Body = Message | CustomMessage

INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "<INSTRUCTIONS>",
    "# AGENTS.md instructions",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<subagent_notification>",
    "<skill>",
)
"""Prefixes of user messages that Codex writes itself."""

_MESSAGE = "message"
_ALREADY_READ = 1_000_000  # characters of a result that are searched for an exit code


def body_of(item: Fields, media: Media, model: str | None) -> Body | None:
    """Convert the response item `item` to a body; return None if it has no known content."""
    kind = text_in(item, "type") or ""
    if kind == _MESSAGE or (not kind and "role" in item):  # nearly always with its type
        return _message(item, media, model)
    read = _READERS.get(kind)
    body = None if read is None else read(item, media)
    if isinstance(body, Message) and body.role == "assistant":
        reason = "tool_calls" if body.tool_calls else "stop"
        return Message("assistant", body.parts, model=model, stop_reason=reason)
    return body


def retained_of(items: Iterable[object], summary: str, media: Media) -> tuple[Message, ...]:
    """Return the messages, other than the summary, with which a compaction replaced the history."""
    kept: list[Message] = []
    for item in items:
        fields = fields_of(item)
        body = None if fields is None else body_of(fields, media, None)
        if isinstance(body, CustomMessage):
            body = Message("user", body.parts) if body.in_context else None
        if body is not None and not (summary and summary in body.text):
            kept.append(body)
    return tuple(kept)


def usage_of(info: Fields) -> Usage | None:
    """Return the usage of the last model call. Codex counts cached tokens as input tokens."""
    last = object_in(info, "last_token_usage")
    if last is None:
        return None
    read, written = (
        count_in(last, "cached_input_tokens"),
        count_in(last, "cache_write_input_tokens"),
    )
    usage = Usage(
        input_tokens=max(0, count_in(last, "input_tokens") - read - written),
        output_tokens=count_in(last, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )
    return usage if usage.total_tokens else None


# -- words


def _message(item: Fields, media: Media, model: str | None) -> Body | None:
    parts = _content(item, "content", media)
    role = text_in(item, "role")
    if parts is None:
        return None
    if role == "assistant":
        return Message("assistant", parts, model=model, stop_reason="stop")
    if role == "user":
        if _is_injected(parts):
            return CustomMessage("codex:context", parts, is_displayed=False)
        return Message("user", parts)
    if role in ("developer", "system"):
        return CustomMessage(f"codex:{role}", parts, is_displayed=False)
    return None


def _is_injected(parts: tuple[Part, ...]) -> bool:
    for part in parts:
        if isinstance(part, TextPart):
            return part.text.lstrip().startswith(INJECTED)
    return False


def _content(fields: Fields, key: str, media: Media) -> tuple[Part, ...] | None:
    return parts_of(fields.get(key), media, _known_part)


def _known_part(fields: Fields, media: Media) -> Part | None:
    text = fields.get("text")
    if isinstance(text, str):
        return TextPart(text)
    address = name_in(fields, "image_url") or name_in(fields, "audio_url")
    return None if address is None else media.from_address(address)


def _reasoning(item: Fields, _media: Media) -> Message:
    texts: list[str] = []
    for key in ("summary", "content"):
        pieces = (fields_of(piece) or {} for piece in list_in(item, key) or ())
        texts += [text for piece in pieces if (text := text_in(piece, "text"))]
    is_redacted = not texts and name_in(item, "encrypted_content") is not None
    return Message("assistant", (ThinkingPart("\n\n".join(texts), is_redacted=is_redacted),))


# -- calls and results


def _function_call(item: Fields, _media: Media) -> Message | None:
    name, space = name_in(item, "name"), name_in(item, "namespace")
    if name is not None and space is not None:
        name = f"{space.rstrip('_')}__{name}"
    return _call(item, name, _arguments(item.get("arguments")))


def _arguments(written: object) -> Fields:
    """Parse a call's arguments, which are a string with JSON; any other text is kept unchanged."""
    if isinstance(written, str):
        found = fields_of(read_line(written.encode("utf-8", "replace")).value)
        return {"arguments": written} if found is None and written else found or {}
    return fields_of(written) or {}


def _custom_tool_call(item: Fields, _media: Media) -> Message | None:
    return _call(item, name_in(item, "name"), {"input": text_in(item, "input") or ""})


def _local_shell_call(item: Fields, _media: Media) -> Message | None:
    action = object_in(item, "action") or {}
    args = {key: value for key, value in action.items() if key != "type" and value is not None}
    return _call(item, "local_shell", args)


def _tool_search_call(item: Fields, _media: Media) -> Message | None:
    return _call(item, "tool_search", _arguments(item.get("arguments")))


def _call(item: Fields, name: str | None, args: Fields) -> Message | None:
    call = call_of(name_in(item, "call_id") or name_in(item, "id"), name, args)
    return None if call is None else Message("assistant", (call,))


def _output(item: Fields, media: Media) -> Message | None:
    call_id = name_in(item, "call_id")
    nested = object_in(item, "output")
    holder, key = (item, "output") if nested is None else (nested, "content")
    parts = _content(holder, key, media)
    if call_id is None or parts is None:
        return None
    has_failed = nested is not None and not flag_in(nested, "success", default=True)
    result = result_of(call_id, parts, is_error=has_failed)
    if _is_failure(result.text):
        result = msgspec.structs.replace(result, is_error=True)
    return Message("tool", (result,))


def _is_failure(text: str) -> bool:
    """Return whether `text`, a command's result as the model gets it, has a non-zero exit code."""
    if text.startswith("Exit code: "):
        return not text.startswith("Exit code: 0\n")
    if not text.startswith('{"output":') or len(text) > _ALREADY_READ:
        return False
    fields = fields_of(read_line(text.encode("utf-8", "replace")).value) or {}
    return bool(number_in(object_in(fields, "metadata") or {}, "exit_code"))


def _tool_search_output(item: Fields, _media: Media) -> Message | None:
    call_id, tools = name_in(item, "call_id"), list_in(item, "tools")
    if call_id is None or tools is None:
        return None
    return Message("tool", (ToolResultPart(call_id, encode(tools).decode()),))


def _image(item: Fields, media: Media) -> CustomMessage | None:
    """Return an image that the model's provider generated; it is displayed but never sent again."""
    found = media.from_address(name_in(item, "result"))
    if found is None:
        return None
    prompt = name_in(item, "revised_prompt")
    words = () if prompt is None else (TextPart(prompt),)
    return CustomMessage("codex:image", (*words, found), in_context=False)


_READERS: dict[str, Callable[[Fields, Media], Body | None]] = {
    "reasoning": _reasoning,
    "function_call": _function_call,
    "function_call_output": _output,
    "custom_tool_call": _custom_tool_call,
    "custom_tool_call_output": _output,
    "local_shell_call": _local_shell_call,
    "local_shell_call_output": _output,
    "tool_search_call": _tool_search_call,
    "tool_search_output": _tool_search_output,
    "image_generation_call": _image,
}

READ_ITEMS = frozenset({_MESSAGE, *_READERS})
"""Types of the response items that become messages."""
