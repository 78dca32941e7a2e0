"""Converts items of the Responses API to entries of a session, and back without loss.

A message, a tool call, a tool result and a reasoning item become messages, which every program that
reads the session can show. `Message.foreign` stores the item without the long texts of the message,
so that each long text is stored once. `OpenAIItem.taken` records the places in the item from which
long texts were taken. An item with only a role and a text becomes a message without
`Message.foreign`. Every other item becomes a `Custom` entry that contains the item's JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec

import perdure
from perdure.adapters.stored_json import Place, opaque_entry, put_at

Item = dict[str, Any]
"""One item: the JSON object that the SDK passes."""

CUSTOM_TYPE: Final = "openai.item"
"""`Custom.custom_type` of the items that no message can represent."""

_DATA_URL = re.compile(r"data:((?:image|audio|video)/[\w.+-]{1,100}|application/pdf);base64,")

_TEXTS: Mapping[object, str] = {
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "summary_text": "text",
    "reasoning_text": "text",
}
"""Maps the type of a content part to the name of the field that contains its text."""
_BYTES: Mapping[object, str] = {"input_image": "image_url", "input_file": "file_data"}
"""Maps the type of a content part to the name of the field that contains its ``data:`` URL."""
_Role = Literal["user", "system", "assistant", "tool"]
_Part = perdure.TextPart | perdure.ThinkingPart | perdure.ToolCallPart | perdure.ToolResultPart

_ROLES: Mapping[object, _Role] = {
    "user": "user",
    "system": "system",
    "developer": "system",
    "assistant": "assistant",
}

_ANSWERS: tuple[tuple[str, ...], ...] = (
    ("id", "content", "role", "status", "type"),
    ("id", "type", "role", "content", "status"),
    ("id", "type", "role", "status", "content"),
)
"""The usual keys of an assistant message, in their usual orders."""
_OUTPUTS: tuple[Item, ...] = (
    {"annotations": [], "text": "", "type": "output_text", "logprobs": []},
    {"annotations": [], "text": "", "type": "output_text"},
    {"type": "output_text", "text": "", "annotations": []},
)
"""The usual content parts of an assistant message, without their text."""

Entry = perdure.Message | perdure.InFlightMessage | perdure.Custom


class OpenAIItem(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """An item of the OpenAI Agents SDK, as `Message.foreign` stores it.

    `taken` lists the texts and media that are left out of `openai_item`, because the message
    contains them. Each element of `taken` is a list: the index of the message part, followed by the
    path of the value in the item.

    `openai_answer` is stored instead of `openai_item` for an assistant message with the usual
    fields. `openai_answer` contains an index in `_ANSWERS`, an index in `_OUTPUTS`, the item's id
    and the status. If `openai_answer` is set, the texts of the message are the content of the item.
    """

    openai_item: Item | None = None
    taken: list[list[Any]] = []
    openai_answer: tuple[int, int, str, str] | None = None


class _StoredPart(msgspec.Struct, gc=False):
    """A part of a stored message: its text, or the handle of its bytes."""

    type: str = ""
    text: str = ""
    handle: str = ""
    mime_type: str = ""


class _Stored(msgspec.Struct, gc=False):
    """The fields of an entry's body that an item is built from."""

    role: str = ""
    foreign: OpenAIItem | None = None
    parts: list[_StoredPart] = []
    custom_type: str = ""
    data: dict[str, Any] | None = None


class ItemParts(msgspec.Struct, frozen=True, gc=False):
    """An item made from an entry, without the values that are stored outside the log.

    `wanted` lists these values: the handle, the media type and the path in the item. An empty path
    means the whole item, as JSON.
    """

    item: Item
    wanted: tuple[tuple[str, str, Place], ...] = ()


_decoder = msgspec.json.Decoder(_Stored)


def entry_of(item: Item) -> Entry:
    """Return `item` as a message if a message can represent it, otherwise as a `Custom` entry."""
    if "role" in item and item.get("type", "message") == "message":
        return _message(item) or opaque_item(item)
    match item.get("type"):
        case "function_call":
            return _call(item) or opaque_item(item)
        case "function_call_output":
            return _result(item) or opaque_item(item)
        case "reasoning":
            return _reasoning(item) or opaque_item(item)
        case _:
            return opaque_item(item)


def opaque_item(item: Item) -> perdure.Custom:
    """Return `item` as a `Custom` entry. Raises: the errors of `opaque_entry`."""
    return opaque_entry(CUSTOM_TYPE, item)


def items_of(entry: perdure.Entry) -> list[ItemParts]:
    """Return the item that `entry` was made from.

    A message of another program becomes items with the message's content: its tool results, then
    its text, then its tool calls. Returns an empty list for an erased entry, and for an entry that
    is no message and was not made from an item.
    """
    if entry.is_erased or entry.kind not in ("message", "custom"):
        return []
    try:
        stored = _decoder.decode(entry.body)
    except msgspec.ValidationError:  # foreign data of another program
        stored = _Stored()
    if stored.foreign is not None:
        try:
            return [_restored(stored.foreign, stored.parts)]
        except (IndexError, KeyError, TypeError):  # likewise
            pass
    if entry.kind == "message":
        if (item := _plain_item(stored)) is not None:
            return [ItemParts(item)]
        return [] if (message := entry.message) is None else said_items(message)
    if stored.custom_type != CUSTOM_TYPE or stored.data is None:
        return []
    if "json" in stored.data:
        return [ItemParts(json.loads(stored.data["json"]))]
    return [ItemParts({}, ((stored.data["content"]["handle"], "", []),))]


def filled(parts: ItemParts, contents: Mapping[str, bytes]) -> Item:
    """Return the item of `parts` with its bytes inserted; `contents` maps handles to bytes."""
    item = parts.item
    for handle, mime_type, place in parts.wanted:
        if not place:
            return cast("Item", json.loads(contents[handle]))
        encoded = base64.b64encode(contents[handle]).decode("ascii")
        put_at(item, place, f"data:{mime_type};base64,{encoded}")
    return item


def said_items(message: perdure.Message) -> list[ItemParts]:
    """Return the items for `message`, which another program wrote."""
    texts = [part.text for part in message.parts if isinstance(part, perdure.TextPart)]
    role = "user" if message.role in ("context", "tool") else message.role
    said = "\n\n".join(text for text in texts if text)
    outputs: list[Item] = []
    calls: list[Item] = []
    for part in message.parts:
        if isinstance(part, perdure.ToolResultPart):
            output = {"call_id": part.call_id, "output": part.text}
            outputs.append({"type": "function_call_output", **output})
        if isinstance(part, perdure.ToolCallPart):
            call = {"call_id": part.id, "name": part.name, "arguments": json.dumps(part.args)}
            calls.append({"type": "function_call", **call})
    items = [*outputs, *([{"role": role, "content": said}] if said else ()), *calls]
    return [ItemParts(item) for item in items]


# ------------------------------------------------------------ to entries


def _message(item: Item) -> Entry | None:
    role, content = _ROLES.get(item.get("role")), item.get("content")
    if role is None:
        return None
    if isinstance(content, str):
        if content and item.get("role") == role and list(item) == ["role", "content"]:
            return perdure.Message(role, (perdure.TextPart(content),))
        kept = OpenAIItem({**item, "content": ""}, [[0, "content"]])
        return _as_message(role, [perdure.TextPart(content)], kept)
    if not isinstance(content, list):
        return None
    parts, kept = _contents(item, "content", cast("list[object]", content))
    if any(not isinstance(part, str) for part in parts):
        return _with_media(role, parts, kept)
    texts = [perdure.TextPart(part) for part in parts if isinstance(part, str)]
    if texts and (answer := _answer(item)) is not None:
        kept = OpenAIItem(openai_answer=answer)
    return _as_message(role, texts, kept) if texts else None


def _answer(item: Item) -> tuple[int, int, str, str] | None:
    """Return the `OpenAIItem.openai_answer` of a common assistant message; None for other items."""
    keys, id, status = tuple(item), item.get("id"), item.get("status")
    if keys not in _ANSWERS or item["role"] != "assistant":
        return None
    if not isinstance(id, str) or not isinstance(status, str):
        return None
    for number, usual in enumerate(_OUTPUTS):
        if all(list(_blank(part).items()) == list(usual.items()) for part in item["content"]):
            return _ANSWERS.index(keys), number, id, status
    return None


def _blank(part: object) -> Item:
    """Return a content part without its text."""
    fields = cast("Item", part) if isinstance(part, dict) else {}
    return {**fields, "text": ""} if isinstance(fields.get("text"), str) else fields


def _reasoning(item: Item) -> Entry | None:
    summary = item.get("summary")
    if not isinstance(summary, list):
        return None
    parts, kept = _contents(item, "summary", cast("list[object]", summary))
    thoughts = [perdure.ThinkingPart(part) for part in parts if isinstance(part, str)]
    if not summary and item.get("encrypted_content"):  # readable by its provider only
        thoughts = [perdure.ThinkingPart("", is_redacted=True)]
    elif not thoughts or len(thoughts) < len(parts):
        return None
    return _as_message("assistant", thoughts, kept)


def _call(item: Item) -> Entry | None:
    name, call, given = item.get("name"), item.get("call_id"), item.get("arguments")
    if not isinstance(name, str) or not isinstance(call, str) or not isinstance(given, str):
        return None
    part = perdure.ToolCallPart(call, name, arguments_of(given))
    return _as_message("assistant", [part], OpenAIItem(item))


def arguments_of(given: str) -> Item:
    """Return the arguments of a call as an object; `given` is JSON text from a model."""
    try:
        args: object = msgspec.json.decode(given)
    except (ValueError, RecursionError):
        args = None
    return cast("Item", args) if isinstance(args, dict) else {"arguments": given}


def _result(item: Item) -> Entry | None:
    call, output = item.get("call_id"), item.get("output")
    if not isinstance(call, str):
        return None
    if not isinstance(output, str):
        text, kept = _text_of(output), OpenAIItem(item)
    elif "base64" in output.lower():  # the store moves base64 out of the text of a result
        text, kept = output, OpenAIItem(item)
    else:
        text, kept = output, OpenAIItem({**item, "output": ""}, [[0, "output"]])
    return _as_message("tool", [perdure.ToolResultPart(call, text)], kept)


def _text_of(output: object) -> str:
    if not isinstance(output, list):
        return json.dumps(output)
    parts = [cast("Item", part) for part in cast("list[object]", output) if isinstance(part, dict)]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))


class _Media(msgspec.Struct, frozen=True):
    """The bytes in a ``data:`` URL."""

    mime_type: str
    content: bytes


def _contents(
    item: Item, field: str, content: Sequence[object]
) -> tuple[list[str | _Media], OpenAIItem]:
    """Return the texts and media of `content`, and `item` without them."""
    parts: list[str | _Media] = []
    taken: list[list[Any]] = []
    kept = list(content)
    for number, each in enumerate(content):
        fields = cast("Item", each if isinstance(each, dict) else {})
        kind = fields.get("type")
        name = _TEXTS.get(kind) or _BYTES.get(kind) or ""
        value = fields.get(name)
        part = None
        if isinstance(value, str):
            part = value if kind in _TEXTS else _media(value)
        if part is not None:
            taken.append([len(parts), field, number, name])
            parts.append(part)
            kept[number] = {**fields, name: ""}
    return parts, OpenAIItem({**item, field: kept}, taken)


def _media(address: str) -> _Media | None:
    """Return the bytes of a ``data:`` URL; None if encoding them gives a different URL."""
    found = _DATA_URL.match(address)
    if found is None:
        return None
    encoded = address[found.end() :]
    try:
        content = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    if not content or base64.b64encode(content).decode("ascii") != encoded:
        return None
    return _Media(found[1], content)


def _with_media(role: _Role, parts: Sequence[str | _Media], kept: OpenAIItem) -> Entry | None:
    """Return a user message with media; None if a message cannot contain them."""
    if role != "user":
        return None
    try:
        said = [
            part if isinstance(part, str) else perdure.media(part.content, part.mime_type)
            for part in parts
        ]
    except ValueError:
        return None
    return perdure.user(*said, foreign=_foreign(kept))


def _as_message(role: _Role, parts: Sequence[_Part], kept: OpenAIItem) -> Entry:
    return perdure.Message(role, tuple(parts), foreign=_foreign(kept))


def _foreign(kept: OpenAIItem) -> dict[str, object]:
    return cast("dict[str, object]", msgspec.to_builtins(kept))


# ------------------------------------------------------------ from entries


def _plain_item(stored: _Stored) -> Item | None:
    """Return the item for a message that has only a role and a text."""
    if stored.role not in ("user", "assistant", "system") or len(stored.parts) != 1:
        return None
    part = stored.parts[0]
    is_plain = part.type == "text" and part.text != ""
    return {"role": stored.role, "content": part.text} if is_plain else None


def _restored(kept: OpenAIItem, parts: Sequence[_StoredPart]) -> ItemParts:
    if kept.openai_answer is not None:
        return ItemParts(_answer_of(*kept.openai_answer, parts))
    item = kept.openai_item
    if item is None:
        raise KeyError("openai_item")
    wanted: list[tuple[str, str, Place]] = []
    for taken in kept.taken:
        number: int = taken[0]
        part, place = parts[number], taken[1:]
        if part.handle:
            wanted.append((part.handle, part.mime_type, place))
        else:
            put_at(item, place, part.text)
    return ItemParts(item, tuple(wanted))


def _answer_of(keys: int, output: int, id: str, status: str, parts: Sequence[_StoredPart]) -> Item:
    content = [_output(_OUTPUTS[output], part.text) for part in parts]
    fields: Item = {"id": id, "status": status, "content": content}
    fields |= {"type": "message", "role": "assistant"}
    return {key: fields[key] for key in _ANSWERS[keys]}


def _output(usual: Item, text: str) -> Item:
    made: Item = {**usual, "text": text, "annotations": []}
    if "logprobs" in made:
        made["logprobs"] = []
    return made
