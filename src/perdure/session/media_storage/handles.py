"""Replace inline media with handles, and return the contents to store.

The functions do not change their arguments. Error messages never show contents.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, cast

import msgspec

from perdure.errors.arguments import is_utf8
from perdure.errors.usage import WrongArgument
from perdure.session.argument_checks import is_kept
from perdure.session.media.inline import HANDLE, MAX_MESSAGE_BYTES, MAX_PARTS, InlineMedia
from perdure.session.messages import (
    InFlightMessage,
    MediaPart,
    Message,
    Part,
    ToolResultPart,
    UnknownPart,
)

PartT = TypeVar("PartT", bound=Part)

_DATA_URL = re.compile(r"data:[^,]{0,200};base64,", re.IGNORECASE)
_object = msgspec.json.Decoder()

_DEEPEST = 50
"""Data that is nested deeper than this is checked for cycles: it may contain itself."""

_PLACE_CHARS = 80
"""Approximate maximum length of the place of a value in error messages."""


class Settled(msgspec.Struct, frozen=True):
    """A value that can be stored, and the distinct contents that it references by handle."""

    value: object
    contents: tuple[bytes, ...]


def settled_message(message: InFlightMessage) -> tuple[Message, tuple[bytes, ...]]:
    """Return `message` in the form that a log can store, and the contents of its media.

    Raises: ValueError if `message` has more media, or larger media, than a message can contain.
    """
    inline = [part for part in message.parts if isinstance(part, InlineMedia)]
    if len(inline) > MAX_PARTS:
        raise ValueError(f"a message holds at most {MAX_PARTS} media, not {len(inline)}")
    if sum(len(part.content) for part in inline) > MAX_MESSAGE_BYTES:
        raise ValueError(f"the media of a message have at most {MAX_MESSAGE_BYTES} bytes")
    parts, contents = stored_media(message.parts)
    durable = Message(
        message.role,
        parts,
        author=message.author,
        said_at=message.said_at,
        foreign=message.foreign,
    )
    return durable, contents


def stored_media(
    parts: Sequence[PartT | InlineMedia],
) -> tuple[tuple[PartT | MediaPart, ...], tuple[bytes, ...]]:
    """Return `parts` with handles instead of inline media, and the distinct contents."""
    contents = dict.fromkeys(part.content for part in parts if isinstance(part, InlineMedia))
    stored = (media_part(part) if isinstance(part, InlineMedia) else part for part in parts)
    return tuple(stored), tuple(contents)


def media_part(inline: InlineMedia) -> MediaPart:
    """Return the part that a log can store for `inline`: a handle instead of the bytes."""
    return MediaPart(inline.mime_type, inline.handle, len(inline.content), inline.name)


def settled_data(value: object, name: str = "data") -> Settled:
    """Return `value` (plain data of an extension) with a handle for each `InlineMedia` in it.

    Errors name the place of a wrong value, such as ``data['key'][0]``, in which `name` is the name
    of `value`.
    Shape: the result contains `value` itself if `value` contains no `InlineMedia`.
    Raises: WrongArgument for values that JSON cannot represent, and for data that contains itself.
    Raises WrongArgument for bytes that are not an `InlineMedia` (raw bytes, or a ``data:``
    address).
    """
    if _is_durable(value, 0):
        return Settled(value, ())
    contents: dict[bytes, None] = {}
    return Settled(_taken_out(value, contents, (), name), tuple(contents))


def _is_durable(value: object, depth: int) -> bool:
    """Return True for plain JSON without media; False if `_taken_out` must check the value."""
    kind = type(value)
    if kind is str:
        return _is_text(value) and _DATA_URL.match(cast("str", value)) is None
    if kind is float:
        return math.isfinite(cast("float", value))
    if value is None or kind is bool:
        return True
    if kind is int:
        return is_kept(value)
    if depth > _DEEPEST:  # it may contain itself
        return False
    if kind is dict:
        fields = cast("dict[object, object]", value)
        if not all(map(_is_text, fields)):
            return False
        items: Iterable[object] = fields.values()
    elif kind is list or kind is tuple:
        items = cast("Sequence[object]", value)
    else:
        return False
    return all(_is_durable(item, depth + 1) for item in items)  # ends at the first cycle


def _is_text(value: object) -> bool:
    """Return True for text that can be encoded; ASCII is checked first, because this is faster."""
    return type(value) is str and (value.isascii() or is_utf8(value))


def _taken_out(
    value: object, contents: dict[bytes, None], above: tuple[int, ...], place: str
) -> object:
    if isinstance(value, msgspec.Raw):  # checked at construction
        return value
    if isinstance(value, InlineMedia):
        contents[value.content] = None
        return msgspec.to_builtins(media_part(value))
    if isinstance(value, bytes | bytearray | memoryview):
        raise WrongArgument(f"{place} is bytes, which cannot be in a log: give perdure.media(...)")
    if isinstance(value, str):
        if _DATA_URL.match(value):
            raise WrongArgument(
                f"{place} is a data: address, which cannot be in a log: give perdure.media(...)"
            )
        _require_utf8(value, place)
        return value
    if id(value) in above:
        raise WrongArgument(f"{place} holds itself, which JSON cannot: leave it out")
    within = (*above, id(value))
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        for key in fields:
            _require_text_key(key, place)
        taken = {
            key: _taken_out(item, contents, within, _below(place, f"{key!r:.40}"))
            for key, item in fields.items()
        }
        return fields if all(taken[key] is fields[key] for key in fields) else taken
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        kept = [
            _taken_out(item, contents, within, _below(place, f"{number}"))
            for number, item in enumerate(items)
        ]
        return items if all(a is b for a, b in zip(kept, items, strict=True)) else kept
    _require_json(value, place)
    return value


def _below(place: str, key: str) -> str:
    return f"{place}[{key}]" if len(place) < _PLACE_CHARS else place


def _require_text_key(key: object, place: str) -> None:
    """Reject a key that JSON would convert to text. Raises: WrongArgument."""
    if not isinstance(key, str):
        raise WrongArgument(
            f"{place} is JSON, whose keys are text: {key!r:.40} is of type {type(key).__name__}; "
            "make it a text"
        )
    _require_utf8(key, place)


def _require_utf8(text: str, place: str) -> None:
    if not is_utf8(text):
        raise WrongArgument(f"{place} is JSON, which cannot hold half of a character pair")


def _require_json(value: object, place: str) -> None:
    """Reject a value that JSON would not return unchanged when it is read back.

    Raises: WrongArgument.
    """
    if value is None or isinstance(value, bool | msgspec.Struct | msgspec.UnsetType):
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise WrongArgument(f"{place} is JSON, which cannot hold {value}: give it as text or None")
    if isinstance(value, int | float) and type(value) in (int, float):
        if is_kept(value):
            return
        raise WrongArgument(
            f"{place} is a number of more than 64 bits: give it as text, or in raw_json"
        )
    kind = type(value).__name__
    advice = "a list" if isinstance(value, set | frozenset) else "text or a number"
    raise WrongArgument(f"{place} is JSON, which has no {kind}: give it as {advice}")


def inline_in(parts: Sequence[Part]) -> str | None:
    """Return the reason why a log cannot contain `parts`; None if it can.

    A log cannot contain inline bytes, or media without a handle.

    Arguments and results of tools are free text and are not checked.
    """
    for part in parts:
        held = [part] if isinstance(part, MediaPart) else []
        if isinstance(part, ToolResultPart):
            held = [*part.media]
        if any(not HANDLE.fullmatch(each.handle) for each in held):
            return "media are in a log by their handle only (media://sha256-…)"
        if isinstance(part, UnknownPart) and _holds_base64(_object.decode(part.raw)):
            return "it holds media as bytes; append them as perdure.media(...)"
    return None


def _holds_base64(value: object) -> bool:
    return any(map(_is_base64, values_in(value)))


def _is_base64(value: object) -> bool:
    if isinstance(value, str):
        return _DATA_URL.match(value) is not None
    fields = cast("dict[str, object]", value) if isinstance(value, dict) else {}
    is_named = "base64" in (fields.get("type"), fields.get("kind"))
    return is_named and isinstance(fields.get("data"), str)


def values_in(value: object) -> Iterator[object]:
    """Yield the plain data `value` and all values in it, without recursion, in any order."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, list | tuple):
            waiting.extend(cast("Sequence[object]", each))
        elif isinstance(each, dict):
            waiting.extend(cast("dict[str, object]", each).values())
