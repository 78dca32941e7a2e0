"""Store base64 in tool arguments and results as content, and restore the base64 for a tool.

The base64 of ``data:image/png;base64,iVBO...`` and of an object whose `type` or `kind` is
``base64`` is replaced by a handle (``media://sha256-...``). Only canonical base64 is replaced, so
restoring the contents gives the same text.
"""

from __future__ import annotations

import base64
import binascii
import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from perdure.session.ids import blob_hash
from perdure.session.media.inline import SCHEME
from perdure.session.media_storage.handles import values_in
from perdure.session.messages import Message, ToolCallPart, ToolResultPart

_MARK = "base64"
_URL = r"(data:[^,\s\"']{0,200};base64,)"
_BYTES = re.compile(_URL + r"([A-Za-z0-9+/]{4,}={0,2})", re.IGNORECASE)
_HANDLE = re.compile(_URL + r"(media://sha256-[0-9a-f]{64})", re.IGNORECASE)

MAX_DEPTH = 64
"""Arguments that are nested deeper than this are not changed."""


def stored_message(message: Message) -> tuple[Message, tuple[bytes, ...]]:
    """Replace base64 in the calls and results of `message` with handles.

    Return the new message and the decoded contents. Each content is returned once, even if it
    occurs several times.
    Shape: if `message` contains no base64, the returned message is `message` itself.
    """
    contents: dict[str, bytes] = {}
    parts = tuple(
        _stored_part(part, contents) if isinstance(part, ToolCallPart | ToolResultPart) else part
        for part in message.parts
    )
    if not contents:
        return message, ()
    return msgspec.structs.replace(message, parts=parts), tuple(contents.values())


def stored_text(text: str) -> tuple[str, dict[str, bytes]]:
    """Return the result `text` with handles instead of base64, and a map from handle to bytes."""
    contents: dict[str, bytes] = {}
    if _MARK not in text.lower():
        return text, contents
    if text.lstrip()[:1] in ("{", "["):
        json: Any = importlib.import_module("json")  # few texts need it
        try:
            data: object = json.loads(text)
        except (ValueError, RecursionError):
            data = None
        found: dict[str, bytes] = {}
        taken = _rebuilt(data, lambda value: _taken_out(value, found), _object_taker(found))
        if _has_object(data) and found:
            return json.dumps(taken, ensure_ascii=False), found
    return _taken_out(text, contents), contents


def restore_args(args: Mapping[str, object], contents: Mapping[str, bytes]) -> dict[str, object]:
    """Return the arguments `args` with handles replaced by their `contents`."""

    def text(value: str) -> str:
        return _HANDLE.sub(lambda found: found[1] + _encode(found[2], contents), value)

    def of_object(value: dict[str, object]) -> dict[str, object]:
        data = value.get("data")
        if not isinstance(data, str) or data not in contents:
            return value
        return {**value, "data": _encode(data, contents)}

    return cast("dict[str, object]", _rebuilt(dict(args), text, of_object))


def restored_text(text: str, contents: Mapping[str, bytes]) -> str:
    """Return the result `text` with handles replaced by their `contents`."""
    for handle in contents:
        text = text.replace(handle, _encode(handle, contents))
    return text


def _encode(handle: str, contents: Mapping[str, bytes]) -> str:
    content = contents.get(handle)
    return handle if content is None else base64.b64encode(content).decode()


def _stored_part(
    part: ToolCallPart | ToolResultPart, contents: dict[str, bytes]
) -> ToolCallPart | ToolResultPart:
    found: dict[str, bytes] = {}
    stored: ToolCallPart | ToolResultPart = part
    if isinstance(part, ToolResultPart):
        text, found = stored_text(part.text)
        stored = msgspec.structs.replace(part, text=text)
    elif any(_MARK in text.lower() for text in _texts(part.args)):
        args = _rebuilt(part.args, lambda value: _taken_out(value, found), _object_taker(found))
        stored = msgspec.structs.replace(part, args=cast("dict[str, object]", args))
    if not found:
        return part
    contents.update(found)
    return msgspec.structs.replace(stored, contents=(*part.contents, *found))


def _taken_out(text: str, contents: dict[str, bytes]) -> str:
    """Return `text` with a handle in place of the base64 of each ``data:`` address."""

    def replaced(found: re.Match[str]) -> str:
        whole = _canonical(found[2])
        if not whole:
            return found[0]
        return found[1] + _keep(whole, contents) + found[2][len(whole) :]

    return _BYTES.sub(replaced, text) if _MARK in text.lower() else text


def _object_taker(
    contents: dict[str, bytes],
) -> Callable[[dict[str, object]], dict[str, object]]:
    def taken(value: dict[str, object]) -> dict[str, object]:
        data = value.get("data")
        if not isinstance(data, str) or not data or _canonical(data) != data:
            return value
        return {**value, "data": _keep(data, contents)}

    return taken


def _keep(whole: str, contents: dict[str, bytes]) -> str:
    content = base64.b64decode(whole)
    handle = SCHEME + blob_hash(content)
    contents[handle] = content
    return handle


def _canonical(text: str) -> str:
    """Return the longest prefix of `text` that is canonical base64; "" if there is none."""
    bare = text.rstrip("=")
    whole = text if len(text) % 4 == 0 else bare[: len(bare) - len(bare) % 4]
    for candidate in (whole, bare[: max(len(bare) - 1, 0) // 4 * 4]):
        try:
            content = base64.b64decode(candidate, validate=True)
        except (binascii.Error, ValueError):
            continue
        if base64.b64encode(content).decode() == candidate:
            return candidate
    return ""


def _rebuilt(
    value: Any,
    text: Callable[[str], str],
    of_object: Callable[[dict[str, object]], dict[str, object]],
    depth: int = 0,
) -> Any:
    """Return `value` after applying `text` to each string and `of_object` to each base64 object."""
    if isinstance(value, str):
        return text(value)
    if depth == MAX_DEPTH:
        return value
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [_rebuilt(item, text, of_object, depth + 1) for item in items]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        if _is_base64(fields):
            return of_object(fields)
        return {key: _rebuilt(item, text, of_object, depth + 1) for key, item in fields.items()}
    return value


def _is_base64(fields: Mapping[str, object]) -> bool:
    return _MARK in (fields.get("type"), fields.get("kind")) and "data" in fields


def _has_object(value: object) -> bool:
    """Return True if `value` contains a base64 object."""
    found = (cast("dict[str, object]", each) for each in values_in(value) if isinstance(each, dict))
    return any(_is_base64(each) for each in found)


def _texts(value: object) -> Iterator[str]:
    return (each for each in values_in(value) if isinstance(each, str))
