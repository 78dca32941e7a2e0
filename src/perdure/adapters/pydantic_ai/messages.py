"""Converts messages of Pydantic AI to entries of a session, and back without loss.

A request of Pydantic AI can contain texts of several roles. The texts of each role become one
message, which every program that reads the session can show. `Message.foreign` of the last message
stores the whole Pydantic AI message, without the long texts and pictures that the entry itself
contains. `StoredMessage.taken` records the places of the texts and pictures that were left out.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, cast

import msgspec
from pydantic_ai.conversation_store import ConversationEntry
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter

import perdure
from perdure.adapters.stored_json import Place, opaque_entry, put_at

CUSTOM_TYPE: Final = "pydantic_ai.message"
"""`Custom.custom_type` of a Pydantic AI message that no perdure message can represent."""

FORMAT: Final = "pydantic_ai"
"""Key in `Message.foreign` of the stored Pydantic AI message."""

_PICTURES = ("image/", "audio/", "video/", "application/pdf")

Fields = dict[str, Any]
Item = perdure.Message | perdure.InFlightMessage | perdure.Custom
_Role = Literal["user", "system", "tool"]
_Said = tuple[str | perdure.InlineMedia | perdure.ToolResultPart, Place | None]
"""A part of a message, and the path to the value that is stored only in this part."""


class StoredMessage(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message of Pydantic AI, with the ids of its conversation entry and of the preceding one."""

    id: str
    parent: str | None
    message: Fields
    taken: list[list[Any]] = []


class _Foreign(msgspec.Struct, omit_defaults=True):
    pydantic_ai: StoredMessage | None = None


class _Part(msgspec.Struct, gc=False):
    """A part of a stored message: its text, or the handle of its bytes."""

    text: str = ""
    handle: str = ""


class _Stored(msgspec.Struct):
    foreign: _Foreign | None = None
    parts: list[_Part] = []
    custom_type: str = ""
    data: Fields | None = None


class FoundMessage(msgspec.Struct, frozen=True):
    """A message read from an entry. `wanted` lists handles and the paths where their bytes go."""

    id: str
    parent: str | None
    message: Fields
    wanted: tuple[tuple[str, Place], ...] = ()


_decoder = msgspec.json.Decoder(_Stored)


def dumped(message: ModelMessage) -> Fields:
    """Return `message` as JSON."""
    return cast("Fields", ModelMessagesTypeAdapter.dump_python([message], mode="json")[0])


def items_of(entry: ConversationEntry) -> list[Item]:
    """Return the items to append for `entry`; the last item stores the whole message."""
    message = dumped(entry.message)
    said = _response(message) if message["kind"] == "response" else _requests(message)
    groups = list(said)
    if not groups:
        return [opaque_item(entry)]
    items: list[Item] = [_item(role, parts, message, None) for role, parts in groups[:-1]]
    role, parts = groups[-1]
    kept = msgspec.json.decode(msgspec.json.encode(message))  # a copy without the taken texts
    taken: list[list[Any]] = []
    for number, (_, place) in enumerate(parts):
        if place is not None:
            put_at(kept, place, "")
            taken.append([number, *place])
    stored = StoredMessage(entry.id, entry.parent_id, kept, taken)
    return [*items, _item(role, parts, message, stored)]


def readable(message: ModelMessage) -> list[Item]:
    """Return the readable parts of `message`."""
    fields = dumped(message)
    said = _response(fields) if fields["kind"] == "response" else _requests(fields)
    return [_item(role, parts, fields, None) for role, parts in said]


def opaque_item(entry: ConversationEntry) -> perdure.Custom:
    """Return a `Custom` entry that stores `entry` as JSON text with only ASCII characters."""
    stored = {"id": entry.id, "parent": entry.parent_id, "message": dumped(entry.message)}
    return opaque_entry(CUSTOM_TYPE, stored)


def found_in(entry: perdure.Entry) -> FoundMessage | None:
    """Return the Pydantic AI message in `entry`; None if `entry` is erased or contains none."""
    if entry.is_erased or entry.kind not in ("message", "custom"):
        return None
    try:
        stored = _decoder.decode(entry.body)
        kept = None if stored.foreign is None else stored.foreign.pydantic_ai
        if kept is not None:
            return _restored(kept, stored.parts)
    except (msgspec.ValidationError, IndexError, KeyError, TypeError):
        return None  # foreign data of another program
    if stored.custom_type != CUSTOM_TYPE or stored.data is None:
        return None
    if "json" in stored.data:
        return FoundMessage(**json.loads(stored.data["json"]))
    return FoundMessage("", None, {}, ((stored.data["content"]["handle"], []),))


def entry_with(found: FoundMessage, contents: Mapping[str, bytes]) -> ConversationEntry:
    """Return the Pydantic AI entry with its bytes inserted; `contents` maps handles to bytes."""
    for handle, place in found.wanted:
        if not place:
            found = FoundMessage(**json.loads(contents[handle]))
        else:
            put_at(found.message, place, base64.urlsafe_b64encode(contents[handle]).decode("ascii"))
    message = ModelMessagesTypeAdapter.validate_python([found.message])[0]
    return ConversationEntry(id=found.id, parent_id=found.parent, message=message)


# ------------------------------------------------------------ to entries


def _requests(message: Fields) -> Iterator[tuple[_Role, list[_Said]]]:
    """Yield the parts of a request, grouped by role; only consecutive parts form a group."""
    role: _Role | None = None
    said: list[_Said] = []
    for number, part in enumerate(message["parts"]):
        own, parts = _request_part(part, ["parts", number])
        if not parts or own is None:
            continue
        if own != role and said and role is not None:
            yield role, said
            said = []
        role = own
        said += parts
    if said and role is not None:
        yield role, said


def _request_part(part: Fields, place: Place) -> tuple[_Role | None, list[_Said]]:
    content = part.get("content")
    match part.get("part_kind"):
        case "system-prompt":
            return "system", [(content, [*place, "content"])] if isinstance(content, str) else []
        case "user-prompt":
            return "user", list(_prompt(content, [*place, "content"]))
        case "tool-return" | "retry-prompt" if part.get("tool_call_id") and part.get("tool_name"):
            return "tool", [_result(part, content, [*place, "content"])]
        case "retry-prompt":
            return "user", [(_text(content), None)]
        case _:
            return None, []


def _prompt(content: object, place: Place) -> Iterator[_Said]:
    if isinstance(content, str):
        yield content, place
        return
    for number, each in enumerate(cast("list[object]", content or [])):
        fields = cast("Fields", each if isinstance(each, dict) else {})
        media = _media(fields)
        if isinstance(each, str):
            yield each, [*place, number]
        elif media is not None:
            yield media, [*place, number, "data"]
        elif isinstance(fields.get("url"), str):
            yield fields["url"], None
        elif isinstance(fields.get("content"), str):
            yield fields["content"], None


def _media(fields: Fields) -> perdure.InlineMedia | None:
    """Return binary content as media; None if converting back would not give the same content."""
    data, mime_type = fields.get("data"), fields.get("media_type")
    if fields.get("kind") != "binary" or not isinstance(data, str) or not data:
        return None
    if not isinstance(mime_type, str) or not mime_type.startswith(_PICTURES):
        return None
    try:
        content = base64.b64decode(data, b"-_", validate=True)  # the alphabet of Pydantic
        if base64.urlsafe_b64encode(content).decode("ascii") != data:
            return None
        return perdure.media(content, mime_type)
    except (binascii.Error, ValueError):
        return None


def _result(part: Fields, content: object, place: Place) -> _Said:
    text = _text(content)
    is_error = part["part_kind"] == "retry-prompt" or part.get("outcome", "success") != "success"
    result = perdure.ToolResultPart(part["tool_call_id"], text, is_error, part["tool_name"])
    # The store moves base64 out of the text of a result, so such a text is kept twice.
    is_whole = isinstance(content, str) and "base64" not in content.lower()
    return result, place if is_whole else None


def _text(content: object) -> str:
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def _item(role: str, parts: list[Any], message: Fields, stored: StoredMessage | None) -> Item:
    foreign = None if stored is None else cast("Fields", msgspec.to_builtins(_Foreign(stored)))
    if role == "assistant":
        return _answer([part for part, _ in parts], message, foreign)
    said = [part for part, _ in parts]
    if any(not isinstance(part, str | perdure.ToolResultPart) for part in said):
        return perdure.user(*said, foreign=foreign)
    own = tuple(perdure.TextPart(each) if isinstance(each, str) else each for each in said)
    return perdure.Message(cast("_Role", role), own, foreign=foreign)


def _response(message: Fields) -> Iterator[tuple[str, list[Any]]]:
    said: list[Any] = []
    for number, part in enumerate(message["parts"]):
        place = ["parts", number, "content"]
        match part.get("part_kind"):
            case "text":
                said.append((perdure.TextPart(part["content"]), place))
            case "thinking" if part["content"]:
                said.append((perdure.ThinkingPart(part["content"]), place))
            case "tool-call":
                args = _args(part.get("args"))
                call = perdure.ToolCallPart(part["tool_call_id"], part["tool_name"], args)
                said.append((call, None))
            case _:
                pass
    if said:
        yield "assistant", said


def _args(args: object) -> Fields:
    if isinstance(args, str):
        try:
            args = cast("object", json.loads(args))
        except ValueError:
            return {"arguments": args}
    return cast("Fields", args) if isinstance(args, dict) else {}


def _answer(parts: list[Any], message: Fields, foreign: Fields | None) -> perdure.Message:
    counted = cast("Fields", message.get("usage") or {})
    cached = counted.get("cache_read_tokens", 0)
    written = counted.get("cache_write_tokens", 0)
    usage = perdure.Usage(
        max(0, counted.get("input_tokens", 0) - cached - written),
        counted.get("output_tokens", 0),
        cached,
        written,
    )
    provider, model = message.get("provider_name"), message.get("model_name")
    has_calls = any(isinstance(part, perdure.ToolCallPart) for part in parts)
    return perdure.Message(
        "assistant",
        tuple(parts),
        model=f"{provider}:{model}" if provider and model else model,
        stop_reason="tool_calls" if has_calls else "stop",
        usage=usage if usage.total_tokens else None,
        foreign=foreign,
    )


# ------------------------------------------------------------ from entries


def _restored(kept: StoredMessage, parts: list[_Part]) -> FoundMessage:
    wanted: list[tuple[str, Place]] = []
    for taken in kept.taken:
        number: int = taken[0]
        part, place = parts[number], taken[1:]
        if part.handle:
            wanted.append((part.handle, place))
        else:
            put_at(kept.message, place, part.text)
    return FoundMessage(kept.id, kept.parent, kept.message, tuple(wanted))
