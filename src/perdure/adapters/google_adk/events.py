"""Converts events of the ADK to entries of a session, and back without loss.

An event with text, tool calls or tool results becomes a message, which every program that reads the
session can show. `Message.foreign` stores the event without the values that the message contains,
so texts, arguments, results and media are stored once. Every other ADK event becomes a `Custom`
entry that contains the event's JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from google.adk.events import Event
from pydantic import ValidationError

import perdure
from perdure.adapters.stored_json import is_plain, opaque_entry
from perdure.errors import FormatError

Fields: TypeAlias = dict[str, Any]
"""An event, or a part of it, as JSON data."""

CUSTOM_TYPE: Final = "adk.event"
"""`Custom.custom_type` of the events that no message can represent."""

_MEDIA = re.compile(r"(?:image|audio|video)/[\w.+-]{1,100}|application/pdf")
_HANDLE = re.compile(r"media://sha256-[0-9a-f]{64}")

_Role = Literal["user", "assistant", "tool"]
_CONTENT_ROLES: Mapping[str, str] = {"user": "user", "assistant": "model", "tool": "user"}
"""Maps a message's role to the role of an event's content, if the event does not store it."""
_NONE: Mapping[str, object] = {"agent_state": None, "long_running_tool_ids": None}
"""Fields that `Event.model_dump` always returns, with their default values."""

Entry = perdure.Message | perdure.InFlightMessage | perdure.Custom
_Part = (
    perdure.TextPart
    | perdure.ThinkingPart
    | perdure.ToolCallPart
    | perdure.ToolResultPart
    | perdure.types.UnknownPart
)


class AdkEvent(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An ADK event in `Message.foreign`, without its author and the values that the message has.

    Shape: `content` stores the fields of the event's content, except the parts. `content` is None
    if only the role (``model`` or ``user``) would remain, because the message implies this role.
    `parts` has one object for each part of the event. The object stores the values that the message
    does not contain, or ``{"whole": part}`` if the message does not contain the part at all.
    `parts` is empty if the message contains all values of all parts.
    """

    adk_event: Fields
    content: Fields | None = None
    parts: list[Fields] = []


class _StoredPart(msgspec.Struct, gc=False):
    """A part of a stored message, of any type."""

    type: str
    text: str = ""
    handle: str = ""
    mime_type: str = ""
    id: str = ""
    call_id: str = ""
    name: str | None = None
    args: Fields = {}


class _Stored(msgspec.Struct, gc=False):
    """The fields of an entry's body that an event is built from."""

    role: str = ""
    author: str | None = None
    foreign: AdkEvent | None = None
    parts: list[_StoredPart] = []
    custom_type: str = ""
    data: Fields | None = None


class _Actions(msgspec.Struct, gc=False):
    state_delta: Fields | None = None


class _Event(msgspec.Struct, gc=False):
    """The fields of an event that affect the state of its session."""

    timestamp: float | None = None
    actions: _Actions | None = None


class StoredEvent(msgspec.Struct, frozen=True, gc=False):
    """The JSON data of an event, and the handles of its content that is stored outside the log.

    `media` contains the handle of each media content, and the object whose ``data`` field gets the
    content. `whole` is the handle of the whole event's JSON. `is_said` is True if the event comes
    from a message of another program. `is_unsigned` is True if the event contains tool results and
    has no author.
    """

    fields: Fields
    media: tuple[tuple[str, Fields], ...] = ()
    whole: str = ""
    is_said: bool = False
    is_unsigned: bool = False

    @property
    def delta(self) -> Fields:
        """The changes that the event makes to the state of its session."""
        actions: Fields = self.fields.get("actions") or {}
        return actions.get("state_delta") or {}


_decoder = msgspec.json.Decoder(_Stored)


def fields_of(event: Event) -> Fields:
    """Return `event` as JSON data, without fields that have their default value."""
    dumped = event.model_dump(mode="json", exclude_defaults=True)
    actions = dumped.get("actions")
    for place in (dumped, actions or {}):
        for name, usual in _NONE.items():
            if name in place and place[name] == usual:
                del place[name]
    if actions == {}:
        del dumped["actions"]
    return dumped


def entry_of(fields: Fields) -> Entry:
    """Return an event as a message if a message can represent it, otherwise as a `Custom` entry."""
    made = _message(fields) if is_plain(fields) else None
    return opaque_entry(CUSTOM_TYPE, fields) if made is None else made


def event_of(entry: perdure.Entry) -> StoredEvent | None:
    """Return the event that `entry` was made from.

    A message of another program becomes an event with the content of the message. Returns None for
    an erased entry, and for an entry that is neither a message nor made from an event. Raises:
    FormatError if the JSON does not have the shape of an event.
    """
    if entry.is_erased or entry.kind not in ("message", "custom"):
        return None
    try:
        stored = _decoder.decode(entry.body)
    except msgspec.ValidationError:  # foreign data of another program
        stored = _Stored()
    if stored.foreign is not None:
        try:
            restored = _restored(stored.foreign, stored)
            checked(entry, restored.fields)
        except (FormatError, LookupError, TypeError, ValueError):  # likewise
            pass
        else:
            return restored
    if entry.kind == "message":
        return _said(entry)
    if stored.custom_type != CUSTOM_TYPE or stored.data is None:
        return None
    try:
        if "json" in stored.data:
            fields = json.loads(stored.data["json"])
            is_object = isinstance(fields, dict)
            return StoredEvent(checked(entry, cast("Fields", fields))) if is_object else None
        whole = stored.data["content"]["handle"]
        return StoredEvent({}, whole=whole) if _HANDLE.fullmatch(whole) else None
    except (LookupError, TypeError, ValueError):  # likewise
        return None


def checked(entry: perdure.Entry, fields: Fields) -> Fields:
    """Return the JSON data `fields` of the event in `entry`.

    Raises: FormatError if the data is not an event.
    """
    try:
        msgspec.convert(fields, _Event)
    except msgspec.ValidationError as error:
        raise FormatError(entry.id, f"it is no event of the ADK ({error})") from error
    return fields


def event_with(contents: Mapping[str, bytes], stored: StoredEvent, entry: perdure.Entry) -> Event:
    """Return the event of `entry` with media. Raises: FormatError if the ADK rejects the event."""
    try:
        return validated(stored, contents)
    except ValidationError as error:
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        raise FormatError(entry.id, f"it is no event of the ADK ({reason})") from error


def validated(stored: StoredEvent, contents: Mapping[str, bytes]) -> Event:
    """Return the event with its media; `contents` maps handles to bytes."""
    for handle, place in stored.media:
        place["data"] = base64.urlsafe_b64encode(contents[handle]).decode("ascii")
    fields = json.loads(contents[stored.whole]) if stored.whole else stored.fields
    return Event.model_validate(fields)


# ------------------------------------------------------------ to entries


def _message(fields: Fields) -> Entry | None:
    content: Fields | None = fields.get("content")
    parts: list[Fields] = (content or Fields()).get("parts") or []
    role = _role_of(fields, parts)
    if content is None or role is None:
        return None
    made: list[_Part | Any] = []
    rests: list[Fields] = []
    for number, part in enumerate(parts):
        found = _part(role, part, f"{fields.get('id', '')}/{number}")
        if found is None:
            rests.append({"whole": part})
        else:
            made.append(found[0])
            rests.append(found[1])
    if not made:
        return None
    author = fields.get("author")
    others = {name: value for name, value in content.items() if name != "parts"}
    kept = AdkEvent(
        {name: value for name, value in fields.items() if name not in ("content", "author")},
        None if others == {"role": _CONTENT_ROLES[role]} else others,
        rests if any(rests) else [],
    )
    foreign = cast("dict[str, object]", msgspec.to_builtins(kept))
    if any(not isinstance(part, _Part) for part in made):
        return perdure.InFlightMessage(role, tuple(made), author=author, foreign=foreign)
    usage = _usage(fields) if role == "assistant" else None
    return perdure.Message(role, tuple(made), author=author, usage=usage, foreign=foreign)


def _role_of(fields: Fields, parts: list[Fields]) -> _Role | None:
    results = sum("function_response" in part for part in parts)
    if results:
        return "tool" if results == len(parts) else None
    role = fields["content"].get("role") if parts else None
    is_user = role == "user" or (role is None and fields.get("author") == "user")
    return None if not parts else "user" if is_user else "assistant"


def _part(role: _Role, part: Fields, id: str) -> tuple[object, Fields] | None:
    """Convert `part` to a message part; return this part, and the values that it does not contain.

    Returns None if no type of message part fits.
    """
    rest = dict(part)
    if role == "tool":
        return _result(rest, rest.pop("function_response"), id)
    if "function_call" in part:
        return _call(rest, rest.pop("function_call"), id) if role == "assistant" else None
    if isinstance(part.get("text"), str) and part["text"]:
        text: str = rest.pop("text")
        if role == "assistant" and part.get("thought") is True:
            del rest["thought"]
            return perdure.ThinkingPart(text), rest
        return perdure.TextPart(text), rest
    if "inline_data" in part and role == "user":
        return _media(rest, rest.pop("inline_data"))
    return None


def _call(rest: Fields, call: Fields, id: str) -> tuple[object, Fields] | None:
    name, args = call.get("name"), call.get("args")
    if not isinstance(name, str):
        return None
    lacks = {key: value for key, value in call.items() if key not in ("id", "name", "args")}
    if "id" not in call:
        lacks["id"] = None
    if args is None or "base64" in json.dumps(args).lower():  # the store moves base64 out of it
        lacks["args"] = args
    made = perdure.ToolCallPart(call.get("id") or id, name, args or {})
    return made, {**rest, "function_call": lacks} if lacks else rest


def _result(rest: Fields, result: Fields, id: str) -> tuple[object, Fields]:
    response = result.get("response")
    lacks = {key: v for key, v in result.items() if key not in ("id", "name", "response")}
    lacks.update({key: None for key in ("id", "name") if key not in result})
    text = response["result"] if response is not None and list(response) == ["result"] else None
    if not isinstance(text, str):
        text = json.dumps(response, ensure_ascii=False)
        lacks["is_json"] = True
    if "base64" in text.lower():
        lacks["response"] = response
    is_error = response is not None and "error" in response
    made = perdure.ToolResultPart(
        result.get("id") or id, text, is_error=is_error, name=result.get("name")
    )
    return made, {**rest, "function_response": lacks} if lacks else rest


def _media(rest: Fields, blob: Fields) -> tuple[object, Fields] | None:
    mime_type, data = blob.get("mime_type"), blob.get("data")
    if not isinstance(data, str) or not _MEDIA.fullmatch(str(mime_type)):
        return None
    try:
        content = base64.b64decode(data, altchars=b"-_", validate=True)
        made = perdure.media(content, mime_type)
    except (binascii.Error, ValueError):
        return None
    lacks = {key: value for key, value in blob.items() if key not in ("data", "mime_type")}
    return (made, {**rest, "inline_data": lacks} if lacks else rest) if content else None


def _usage(fields: Fields) -> perdure.Usage | None:
    counted: Fields | None = fields.get("usage_metadata")
    if counted is None:
        return None

    def of(name: str) -> int:
        return counted.get(name) or 0

    cached = min(of("cached_content_token_count"), of("prompt_token_count"))
    return perdure.Usage(
        of("prompt_token_count") - cached,
        of("candidates_token_count") + of("thoughts_token_count"),
        cached,
    )


# ------------------------------------------------------------ from entries


def _restored(kept: AdkEvent, stored: _Stored) -> StoredEvent:
    fields, media = kept.adk_event, list[tuple[str, Fields]]()
    rests: list[Fields] = kept.parts or [{} for _ in stored.parts]
    given = iter(stored.parts)
    parts = [_restored_part(rest, given, media) for rest in rests]
    content = kept.content
    if content is None:
        content = {"role": _CONTENT_ROLES[stored.role]}
    fields["content"] = {**content, "parts": parts}
    if stored.author is not None:
        fields["author"] = stored.author
    return StoredEvent(fields, tuple(media))


def _restored_part(
    rest: Fields, given: Iterator[_StoredPart], media: list[tuple[str, Fields]]
) -> Fields:
    if "whole" in rest:
        whole: Fields = rest["whole"]
        return whole
    part = next(given, None)
    if part is None:
        raise LookupError("the message has fewer parts than its event")
    match part.type:
        case "thinking":
            return {"text": part.text, "thought": True, **rest}
        case "tool_call":
            call = {"id": part.id, "name": part.name, "args": part.args}
            return {**rest, "function_call": {**call, **rest.get("function_call", {})}}
        case "tool_result":
            lacks: Fields = rest.get("function_response", {})
            result: Fields = {"id": part.call_id, "name": part.name}
            if lacks.pop("is_json", False):
                result["response"] = lacks.get("response") or json.loads(part.text)
            else:
                result["response"] = {"result": part.text}
            return {**rest, "function_response": {**result, **lacks}}
        case "media":
            blob: Fields = {"mime_type": part.mime_type, **rest.get("inline_data", {})}
            media.append((part.handle, blob))
            return {**rest, "inline_data": blob}
        case _:
            return {"text": part.text, **rest}


def _said(entry: perdure.Entry) -> StoredEvent | None:
    """Return an event with the content of a message that another program wrote."""
    message = entry.message
    if message is None:
        return None
    parts: list[Fields] = []
    for part in message.parts:
        if isinstance(part, perdure.TextPart):
            parts.append({"text": part.text})
        elif isinstance(part, perdure.ToolCallPart):
            call = {"id": part.id, "name": part.name, "args": part.args}
            parts.append({"function_call": call})
        elif isinstance(part, perdure.ToolResultPart):
            result = {"id": part.call_id, "response": {"result": part.text}}
            parts.append({"function_response": {**result, "name": part.name or "tool"}})
    if not parts or message.role in ("system", "context"):
        return None
    is_model = message.role == "assistant"
    # As in the ADK: it drops results of the user whose calls are not of the running agent.
    results = sum("function_response" in part for part in parts)
    usual = "perdure" if is_model or results == len(parts) else "user"
    moment = entry.at if message.said_at is None else message.said_at
    return StoredEvent(
        {
            "id": entry.id,
            "invocation_id": "perdure",
            "author": message.author or usual,
            "timestamp": moment / 1000,
            "content": {"role": "model" if is_model else "user", "parts": parts},
        },
        is_said=True,
        is_unsigned=results > 0 and not message.author,
    )
