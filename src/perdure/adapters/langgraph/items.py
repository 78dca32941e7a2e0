"""Converts LangGraph items to entries that people can read and `recall` can find, and back."""

from __future__ import annotations

import json
import logging
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import ge, gt, le, lt
from typing import Any, Final, cast

import msgspec
from langgraph.store.base import Item, MatchCondition, SearchItem

import perdure
from perdure.adapters.session_ids import id_part
from perdure.adapters.stored_json import json_text

Namespace = tuple[str, ...]

ITEM: Final = "langgraph.item"
"""`Custom.custom_type` of unsearchable items; other items use it as a key in `Message.foreign`."""
DELETED: Final = "langgraph.item.deleted"
"""`Note.note_type` of a note that deletes an item."""

Vector = Sequence[float]

_logger = logging.getLogger(__name__)


class _Value(msgspec.Struct, gc=False):
    json: str


class _Kept(msgspec.Struct, gc=False):
    """The data of an item in its entry. If `value` is None, the entry's text is the value."""

    key: str
    created_at: int
    vectors: list[str] = []
    value: _Value | None = None


class StoredItem(msgspec.Struct, frozen=True):
    """The newest version of an item. Units: the times are Unix milliseconds."""

    key: str
    value: str
    created_at: int
    updated_at: int
    vectors: tuple[Vector, ...] = ()

    def item(self, namespace: Namespace) -> Item:
        """Return the item as a copy."""
        return Item(**self._fields(namespace))

    def found(self, namespace: Namespace, score: float | None) -> SearchItem:
        """Return the item as the result of a search."""
        return SearchItem(**self._fields(namespace), score=score)

    def _fields(self, namespace: Namespace) -> dict[str, Any]:
        return {
            "value": json.loads(self.value),
            "key": self.key,
            "namespace": namespace,
            "created_at": _moment(self.created_at),
            "updated_at": _moment(self.updated_at),
        }


def item_alias(key: str) -> str:
    """Return the alias of the newest entry of an item."""
    return f"item/{id_part(key)}"


def item_entry(
    key: str, value: object, created_at: int, texts: Sequence[str] | None, vectors: Sequence[Vector]
) -> perdure.types.Item:
    """Return an item as an entry.

    `texts` are the texts by which a search finds the item. If `texts` is None, the whole value is
    searchable; if `texts` is empty, no search finds the item.
    """
    stored = json_text(value)
    kept: dict[str, object] = {"key": key, "created_at": created_at}
    if vectors:
        kept["vectors"] = [b64encode(array("f", each).tobytes()).decode() for each in vectors]
    if texts is None:
        return perdure.user(stored, foreign={ITEM: kept})
    kept["value"] = {"json": stored}
    shown = json.loads(json_text("\n".join(texts)).replace("\\ud", "?"))
    return perdure.user(shown, foreign={ITEM: kept}) if shown else perdure.Custom(ITEM, kept)


def item_of(entry: perdure.Entry) -> StoredItem | None:
    """Return the item in `entry`; None if `entry` is erased or contains no item."""
    if entry.is_erased or entry.kind not in ("message", "custom"):
        return None
    kept: object = None
    text = ""
    if entry.kind == perdure.Custom.kind:
        body = cast("perdure.Custom", perdure.body_of(entry))
        kept = body.data if body.custom_type == ITEM else None
    elif (message := entry.message) is not None:
        kept, text = (message.foreign or {}).get(ITEM), message.text
    if not isinstance(kept, Mapping):
        return None
    try:
        fields = msgspec.convert(kept, _Kept)
        vectors = tuple(array("f", b64decode(each)) for each in fields.vectors)
    except (msgspec.ValidationError, ValueError):
        _logger.warning("entry %s is not counted: this adapter did not write it", entry.id)
        return None
    value = text if fields.value is None else fields.value.json
    return StoredItem(fields.key, value, fields.created_at, entry.at, vectors)


def deleted_key(entry: perdure.Entry) -> str | None:
    """Return the key of the item that `entry` deletes; None if `entry` deletes no item."""
    if entry.is_erased or entry.kind != perdure.Note.kind:
        return None
    note = perdure.body_of(entry)
    if isinstance(note, perdure.Note) and note.note_type == DELETED:
        key = note.data.get("key")
        return key if isinstance(key, str) else None
    return None


def field_of(value: Mapping[str, Any], name: str) -> object:
    """Return a field of an item, which can be nested, such as ``user.name``; None if missing."""
    if name in value:
        return value[name]
    first, _, rest = name.partition(".")
    within: object = value.get(first) if rest else None
    if not isinstance(within, dict):
        return None
    return field_of(cast("dict[str, Any]", within), rest)


def is_match(condition: MatchCondition, namespace: Namespace) -> bool:
    """Return whether `namespace` matches a prefix or suffix condition; ``*`` matches any label."""
    path = condition.path
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)]
    if condition.match_type == "suffix":
        part = namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", label) for wanted, label in zip(path, part, strict=True))


def is_like(value: object, wanted: object) -> bool:
    """Return whether a value equals a filter, or fulfils comparisons such as ``{"$gt": 4}``."""
    if isinstance(wanted, Mapping):
        fields = cast("Mapping[str, object]", wanted)
        if any(name.startswith("$") for name in fields):
            return all(_compare(value, name, other) for name, other in fields.items())
        if not isinstance(value, Mapping):
            return False
        own = cast("Mapping[str, object]", value)
        return all(is_like(own.get(name), other) for name, other in fields.items())
    if isinstance(wanted, list | tuple):
        listed = cast("Sequence[object]", wanted)
        if not isinstance(value, list):
            return False
        items = cast("list[object]", value)
        return len(items) == len(listed) and all(map(is_like, items, listed))
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


_Compare = Callable[[float, float], bool]
_COMPARISONS: Mapping[str, _Compare] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def _compare(value: object, operator: str, other: object) -> bool:
    if operator in ("$eq", "$ne"):
        return is_like(value, other) == (operator == "$eq")
    if operator not in _COMPARISONS:
        raise ValueError(f"unknown operator {operator!r} in a filter")
    try:
        return _COMPARISONS[operator](float(cast("Any", value)), float(cast("Any", other)))
    except (TypeError, ValueError):
        return False


def similarity(one: Vector, other: Vector) -> float:
    """Return the cosine of the angle between two vectors; 0 if a vector contains only zeros."""
    lengths = (sum(x * x for x in one) * sum(x * x for x in other)) ** 0.5
    return sum(map(float.__mul__, one, other)) / lengths if lengths else 0.0


def _moment(at: int) -> datetime:
    return datetime.fromtimestamp(at / 1000, UTC)
