"""Convert requests and responses of the providers' APIs to messages, before they are stored.

The module supports OpenAI's chat completions and responses, and Anthropic's messages. Each request
repeats the whole conversation. Messages with the same content have the same `digest_of`, so
repeated messages are recognised. Pure.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from perdure.codecs.content import parts_of, result_of
from perdure.codecs.fields import Fields, count_in, fields_of, list_in, name_in, object_in, text_in
from perdure.codecs.lines import read_line
from perdure.codecs.media import Media
from perdure.interop.formats.claude_code import messages as anthropic
from perdure.interop.formats.codex import messages as responses
from perdure.session.messages import (
    Message,
    Part,
    Role,
    StopReason,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResultPart,
    Usage,
)

Api = Literal["chat", "responses", "messages"]

_PATHS: dict[str, Api] = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/messages": "messages",
}
_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user"}
_STOPS: dict[str | None, StopReason] = {
    "length": "length",
    "content_filter": "content_filter",
    "tool_calls": "tool_calls",
}


class RecordedRequest(msgspec.Struct, frozen=True):
    """A request to a model: the conversation so far.

    If the request continues an earlier response, `previous` is the id of that response, and
    `messages` contains only the messages after it. `contents` are the bytes of the media in
    `messages`.
    """

    api: Api
    messages: tuple[Message, ...]
    previous: str | None = None
    contents: tuple[bytes, ...] = ()


class RecordedResponse(msgspec.Struct, frozen=True):
    """The answer of a model, with the id that the provider gave it."""

    message: Message | None
    id: str | None = None
    contents: tuple[bytes, ...] = ()


def api_of(path: str) -> Api | None:
    """Return the API that a POST to `path` calls; None for other paths."""
    return next((api for end, api in _PATHS.items() if path.endswith(end)), None)


def request_of(api: Api, content: bytes) -> RecordedRequest | None:
    """Return the request with the body `content`; None if `content` is not a JSON object."""
    fields = fields_of(read_line(content).value)
    if fields is None:
        return None
    media = Media()
    previous = name_in(fields, "previous_response_id") if api == "responses" else None
    said: list[Message] = []
    prompt = fields.get("system" if api == "messages" else "instructions")
    system = _plain_text(prompt)
    if system and previous is None:
        said.append(Message("system", (TextPart(system),)))
    if api == "responses":
        said += _input_of(fields, media)
    else:
        read = _chat_message if api == "chat" else _anthropic_message
        for each in list_in(fields, "messages") or ():
            said += read(fields_of(each) or {}, media)
    return RecordedRequest(api, tuple(_merged(said)), previous, media.blobs)


def response_of(api: Api, content: bytes) -> RecordedResponse | None:
    """Return the response with the body `content`; None if `content` is not a JSON object."""
    fields = fields_of(read_line(content).value)
    return None if fields is None else read_response(api, fields)


def read_response(api: Api, fields: Fields) -> RecordedResponse:
    """Return the response that the JSON object `fields` contains."""
    media = Media()
    read = {"chat": _chat_answer, "responses": _responses_answer, "messages": _anthropic_answer}
    return RecordedResponse(read[api](fields, media), name_in(fields, "id"), media.blobs)


def digest_of(message: Message) -> str:
    """Return a digest of the content of `message`; it does not depend on reasoning parts."""
    parts = [
        part
        for part in message.parts
        if not isinstance(part, ThinkingPart) and not (isinstance(part, TextPart) and not part.text)
    ]
    said = json.dumps(msgspec.to_builtins([message.role, parts]), sort_keys=True)
    return hashlib.sha256(said.encode("ascii")).hexdigest()


def _merged(messages: Iterable[Message]) -> Iterable[Message]:
    """Yield `messages`; join consecutive assistant messages, and consecutive tool messages."""
    waiting: Message | None = None
    for message in messages:
        if waiting is not None and waiting.role == message.role and message.role != "user":
            waiting = Message(waiting.role, (*waiting.parts, *message.parts))
            continue
        if waiting is not None:
            yield waiting
        waiting = message
    if waiting is not None:
        yield waiting


def _plain_text(prompt: object) -> str:
    if isinstance(prompt, str):
        return prompt
    parts = parts_of(prompt, Media(is_kept=False), lambda _fields, _media: None) or ()
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))


# ------------------------------------------------------------ chat completions


def _chat_message(fields: Fields, media: Media) -> Sequence[Message]:
    role = text_in(fields, "role") or ""
    content = parts_of(fields.get("content"), media, _chat_part) or ()
    if role in _ROLES:
        return [Message(_ROLES[role], content)] if content else []
    if role in ("tool", "function"):
        call = name_in(fields, "tool_call_id") or name_in(fields, "name") or ""
        return [Message("tool", (result_of(call, content, is_error=False),))]
    parts = (*content, *_chat_calls(fields))
    return [Message("assistant", parts)] if parts else []


def _chat_part(fields: Fields, media: Media) -> Part | None:
    match text_in(fields, "type"):
        case "image_url":
            return media.from_address(text_in(object_in(fields, "image_url") or {}, "url"))
        case "input_audio":
            audio = object_in(fields, "input_audio") or {}
            kind = "audio/mpeg" if text_in(audio, "format") == "mp3" else "audio/wav"
            return media.part(text_in(audio, "data"), kind)
        case "file":
            return media.from_address(text_in(object_in(fields, "file") or {}, "file_data"))
        case "refusal":
            return TextPart(text_in(fields, "refusal") or "")
        case _:
            return None


def _chat_calls(fields: Fields) -> Iterable[ToolCallPart]:
    for each in list_in(fields, "tool_calls") or ():
        call = fields_of(each) or {}
        function = object_in(call, "function") or object_in(call, "custom") or {}
        name = name_in(function, "name")
        if name is not None:
            given = text_in(function, "arguments") or text_in(function, "input") or ""
            args = fields_of(read_line(given.encode()).value) if given else {}
            yield ToolCallPart(
                name_in(call, "id") or name, name, {"arguments": given} if args is None else args
            )


def _chat_answer(fields: Fields, media: Media) -> Message | None:
    choices = [fields_of(each) or {} for each in list_in(fields, "choices") or ()]
    if not choices:
        return None
    said = object_in(choices[0], "message") or {}
    thought = text_in(said, "reasoning_content") or text_in(said, "reasoning") or ""
    content = parts_of(said.get("content"), media, _chat_part) or ()
    refusal = text_in(said, "refusal")
    parts: tuple[Part, ...] = (
        *([ThinkingPart(thought)] if thought else ()),
        *content,
        *([TextPart(refusal)] if refusal else ()),
        *_chat_calls(said),
    )
    if not parts:
        return None
    counted = object_in(fields, "usage") or {}
    details = object_in(counted, "prompt_tokens_details") or {}
    cached = count_in(details, "cached_tokens")
    tokens = count_in(counted, "prompt_tokens"), count_in(counted, "completion_tokens")
    reason = _STOPS.get(text_in(choices[0], "finish_reason"), "stop")
    return _answer("openai", fields, parts, reason, (max(0, tokens[0] - cached), tokens[1], cached))


# ------------------------------------------------------------ responses


def _input_of(fields: Fields, media: Media) -> Iterable[Message]:
    given = fields.get("input")
    if isinstance(given, str):
        yield Message("user", (TextPart(given),))
        return
    for each in list_in(fields, "input") or ():
        item = fields_of(each) or {}
        if "role" in item:
            item = {"type": "message", **item}
            role = text_in(item, "role") or ""
            parts = parts_of(item.get("content"), media, _input_part) or ()
            if parts:
                yield Message(_ROLES.get(role, "assistant"), parts)
            continue
        body = responses.body_of(item, media, None)
        if isinstance(body, Message):
            yield body


def _input_part(fields: Fields, media: Media) -> Part | None:
    match text_in(fields, "type"):
        case "input_text" | "output_text":
            return TextPart(text_in(fields, "text") or "")
        case "refusal":
            return TextPart(text_in(fields, "refusal") or "")
        case "input_image":
            return media.from_address(text_in(fields, "image_url"))
        case "input_file":
            return media.from_address(text_in(fields, "file_data"))
        case _:
            return None


def _responses_answer(fields: Fields, media: Media) -> Message | None:
    parts: list[Part] = []
    for each in list_in(fields, "output") or ():
        item = fields_of(each) or {}
        if text_in(item, "type") == "message":
            parts += parts_of(item.get("content"), media, _input_part) or ()
            continue
        body = responses.body_of(item, media, None)
        parts += body.parts if isinstance(body, Message) else ()
    if not parts:
        return None
    counted = object_in(fields, "usage") or {}
    cached = count_in(object_in(counted, "input_tokens_details") or {}, "cached_tokens")
    tokens = count_in(counted, "input_tokens"), count_in(counted, "output_tokens")
    has_calls = any(isinstance(part, ToolCallPart) for part in parts)
    reason: StopReason = "tool_calls" if has_calls else "stop"
    if text_in(fields, "status") == "incomplete":
        why = text_in(object_in(fields, "incomplete_details") or {}, "reason")
        reason = "content_filter" if why == "content_filter" else "length"
    counts = (max(0, tokens[0] - cached), tokens[1], cached)
    return _answer("openai", fields, tuple(parts), reason, counts)


def _answer(
    provider: str,
    fields: Fields,
    parts: tuple[Part, ...],
    reason: StopReason,
    counts: tuple[int, int, int],
) -> Message:
    model = name_in(fields, "model")
    return Message(
        "assistant",
        parts,
        model=None if model is None else f"{provider}:{model}",
        stop_reason=reason,
        usage=Usage(*counts) if any(counts) else None,
    )


# ------------------------------------------------------------ Anthropic's messages


def _anthropic_message(fields: Fields, media: Media) -> Sequence[Message]:
    parts = anthropic.content_of(fields, media) or ()
    if text_in(fields, "role") == "assistant":
        return [Message("assistant", parts)] if parts else []
    results: tuple[ToolResultPart, ...] = anthropic.said_by_tools(parts)
    said = anthropic.said_by_person(parts)
    found = [Message("tool", results)] if results else []
    return [*found, Message("user", said)] if said else found


def _anthropic_answer(fields: Fields, media: Media) -> Message | None:
    parts = anthropic.content_of(fields, media)
    return anthropic.assistant_of({}, fields, parts) if parts else None
