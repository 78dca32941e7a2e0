"""Stores JSON of other programs in entries, even values that the log cannot store as JSON."""

from __future__ import annotations

import json
import logging
import re
from typing import Any, TypeVar, cast

import msgspec

import perdure
from perdure.errors.arguments import is_utf8

T = TypeVar("T")

INLINE_BYTES = 65_536
"""Maximum size of JSON in a tree entry; longer JSON is stored outside the log."""
_NOTE_BYTES = 4096
"""Maximum size of JSON in a note; longer JSON is stored outside the log, equal JSON only once."""
_HUGE = re.compile(rb"[:,\[]-?[0-9]{19}")
"""Matches a number that can have more than 64 bits."""

_logger = logging.getLogger(__name__)


Place = list[str | int]
"""The path to a value inside JSON data, as keys and indexes."""


def put_at(data: dict[str, Any], place: Place, value: str) -> None:
    """Replace the value at `place` inside `data`."""
    within: Any = data
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value


def is_plain(value: object) -> bool:
    """Return whether a message can store `value` as JSON that decodes to an equal value."""
    try:
        encoded = msgspec.json.encode(value)
        if b'"data:' in encoded or _HUGE.search(encoded):
            return False
        return bool(msgspec.json.decode(encoded) == value)
    except (OverflowError, RecursionError, TypeError, ValueError):
        return False


def opaque_entry(custom_type: str, value: object) -> perdure.Custom:
    """Return a `Custom` entry that stores `value` as JSON text with only ASCII characters.

    Raises: TypeError, ValueError for a value that is not JSON.
    """
    return perdure.Custom(custom_type, json_data(json.dumps(value, separators=(",", ":"))))


def json_data(text: str, inline_bytes: int = INLINE_BYTES) -> dict[str, object]:
    """Return the data of an entry that contains the JSON `text`."""
    if len(text) <= inline_bytes:
        return {"json": text}
    return {"content": perdure.content(text.encode(), "application/json")}


def json_text(value: object) -> str:
    """Return `value` as JSON text that is valid UTF-8, so any log can store it."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text if is_utf8(text) else json.dumps(value, separators=(",", ":"))


def stored_json(value: object) -> dict[str, object]:
    """Return the data for a note that stores `value`."""
    return json_data(json_text(value), _NOTE_BYTES)


async def read_json(store: perdure.Store, entry: perdure.Entry, shape: type[T]) -> T | None:
    """Return the value in the note `entry`; warn and return None if it is not of type `shape`."""
    data = cast("perdure.Note", perdure.body_of(entry)).data
    try:
        text: Any = data.get("json")
        if text is None:
            text = await store.content(cast("Any", data)["content"]["handle"])
        return msgspec.convert(json.loads(text), shape)
    except (AttributeError, KeyError, TypeError, ValueError):
        _logger.warning("note %s is not counted: this adapter did not write it", entry.id)
        return None
