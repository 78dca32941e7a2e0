"""The JSON form of the library's return values, including events."""

from __future__ import annotations

import base64
import dataclasses
import math
from collections.abc import Mapping, Sequence, Set
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any, cast, overload

import msgspec

from perdure.errors import PerdureError, WrongArgument
from perdure.events import projection
from perdure.events.types import AnyEvent, Event, LiveEvent, Snapshot
from perdure.session.argument_checks import takes_declared
from perdure.session.entries import Entry
from perdure.session.info import StreamKind
from perdure.session.messages import UnknownPart


@overload
def wire(value: AnyEvent | Entry, kind: StreamKind = "session") -> dict[str, object]: ...
@overload
def wire(value: object, kind: StreamKind = "session") -> object: ...
@takes_declared
def wire(value: object, kind: StreamKind = "session") -> object:
    """Return `value`, which is an event or another value that perdure returned, as JSON data.

    Shape: an event has ``type``, ``timestamp``, ``sessionId`` and the fields of its payload. If the
    stream of the event has the kind "flow" (`kind`), the event has ``flowId`` and no ``sessionId``.
    A durable event also has ``sequenceNumber``. A durable event has ``index`` unless it is the
    first event of its entry. A durable event has ``more`` if another event of its entry follows. A
    live event also has ``of`` and ``n``. Any other value becomes an object of its fields. The
    ``body`` of an entry also becomes JSON; an erased body becomes None. Paths and times become
    text; an error becomes its ``code``, ``message`` and facts.
    Raises: WrongArgument for handles and other values without a JSON form.
    """
    if isinstance(value, Event | LiveEvent | Snapshot):
        return projection.wire(value, kind)
    result: list[object] = [None]
    waiting: list[tuple[object, Any, int | str]] = [(value, result, 0)]
    while waiting:  # a loop: trees are deeper than Python's stack allows
        part, holder, place = waiting.pop()
        level = _level_of(part)
        if isinstance(level, dict):
            fields = cast("dict[str, object]", dict.fromkeys(level))
            waiting += [(each, fields, name) for name, each in level.items()]
            holder[place] = fields
        elif isinstance(level, list):
            items: list[object] = [None] * len(level)
            waiting += [(each, items, number) for number, each in enumerate(level)]
            holder[place] = items
        else:
            holder[place] = level
    return result[0]


def _level_of(value: object) -> str | float | dict[str, object] | list[object] | None:
    """Return `value` as JSON without its nested values. Raises: WrongArgument."""
    if isinstance(value, Enum):
        return _level_of(value.value)
    if isinstance(value, str | int | None):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date | PurePath):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return _parts_of(value)


def _parts_of(value: object) -> dict[str, object] | list[object] | str | float | None:
    if isinstance(value, msgspec.Raw):
        return _level_of(msgspec.json.decode(value))
    if isinstance(value, PerdureError):
        return {"code": value.code, "message": str(value), **value.facts()}
    if isinstance(value, Mapping):
        entries = cast("Mapping[object, object]", value)
        return {str(key): each for key, each in entries.items()}
    if isinstance(value, Sequence | Set):
        return list(cast("Sequence[object] | Set[object]", value))
    return _fields_of(value)


def _fields_of(value: object) -> dict[str, object] | list[object] | str | float | None:
    if isinstance(value, Entry):
        return _entry_fields(value)
    if isinstance(value, UnknownPart):
        return _level_of(value.raw)
    if isinstance(value, msgspec.Struct):
        config = value.__struct_config__
        tag: dict[str, object] = {}
        if config.tag is not None:
            tag[config.tag_field or "type"] = config.tag
        names = value.__struct_fields__
        values = {name: getattr(value, name) for name in names}
        return tag | {name: each for name, each in values.items() if each is not msgspec.UNSET}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    kind = type(value).__name__
    raise WrongArgument(f"wire takes events and returned values, not {kind}", argument="value")


def _entry_fields(entry: Entry) -> dict[str, object]:
    body: object = None
    if entry.body:
        try:
            body = msgspec.json.decode(entry.body)
        except (ValueError, RecursionError):  # an opaque entry: its bytes
            body = entry.body
    fields: dict[str, object] = {"id": entry.id}
    fields |= {name: getattr(entry, name) for name in entry.__struct_fields__}
    return fields | {"body": body}
