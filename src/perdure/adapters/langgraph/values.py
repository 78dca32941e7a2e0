"""Channel values in checkpoints: only new values, and the changes of grown values, are stored.

A channel often has the same value as in an earlier checkpoint on the path. If a value is unchanged,
the record of its channel contains only the distance to the checkpoint that stores the value
(`back`). If a value has grown, the checkpoint stores only a tail (the bytes to append to a part of
the earlier value), and the distance to the checkpoint with the earlier value (`from`). A distance
is a number of checkpoints, not an id, so it stays valid in a fork of the session.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

import perdure

_INLINE = 4096
"""Whole values longer than this are stored outside the log, and equal values only once."""

_FARTHEST = 64
"""A value that is stored more than this many checkpoints up the path is stored again."""

_SHORTEST = 256
"""Values shorter than this are always stored whole."""

_LINKS = 32
"""Number of tails after which a value can be stored whole again."""

_SHARE = 8
"""After `_LINKS` tails, a value is stored whole if its tails together exceed 1/8 of its length."""

Record = dict[str, object]
"""A channel value as JSON data."""


class ChannelValue(msgspec.Struct, frozen=True):
    """A serialized value, and how it is stored.

    Shape: the value is stored in the checkpoint that is `back` checkpoints earlier on the path. If
    `links` is above 0, the value consists of a whole value and `links` tails with `linked` bytes in
    total: the checkpoint `back` checkpoints earlier stores a tail, and reading the value needs
    `span` checkpoints before that checkpoint.
    """

    type: str
    data: bytes
    back: int = 0
    span: int = 0
    links: int = 0
    linked: int = 0


def stored(value: tuple[str, bytes], before: ChannelValue | None) -> tuple[Record, ChannelValue]:
    """Return the record of `value`, and its `ChannelValue` for the next checkpoint.

    `before` is the channel's value in the parent checkpoint. If `before` is None, the whole value
    is stored.
    """
    kind, data = value
    if before is not None and before.type == kind:
        if before.data == data and before.back < _FARTHEST:
            again = msgspec.structs.replace(before, back=before.back + 1)
            return {"back": again.back}, again
        if (tail := _tail(before, data)) is not None:
            return tail
    return {"type": kind, **encoded(data)}, ChannelValue(kind, data)


def _tail(before: ChannelValue, data: bytes) -> tuple[Record, ChannelValue] | None:
    """Return `data` as a change of `before`, or None if `data` should be stored whole."""
    if len(data) < _SHORTEST:
        return None
    head, skip = _header(data), _header(before.data)
    keep = _common(before.data[skip:], data[head:])
    tail = data[head + keep :]
    linked = before.linked + len(tail)
    is_long = before.links >= _LINKS and linked * _SHARE > len(data)
    if is_long or len(tail) * 2 > len(data) or before.back >= _FARTHEST:
        return None
    record: Record = {
        "type": before.type,
        "from": before.back + 1,
        "head": _text(data[:head]),
        "skip": skip,
        "keep": keep,
        "tail": _text(tail),
    }
    span = before.back + 1 + before.span
    return record, ChannelValue(before.type, data, 0, span, before.links + 1, linked)


def _header(data: bytes) -> int:
    """Return the length of the header of a MessagePack array; longer arrays have longer headers."""
    first = data[0] if data else 0
    return 1 if 0x90 <= first <= 0x9F else {0xDC: 3, 0xDD: 5}.get(first, 0)


def _common(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix of `one` and `other`."""
    if other.startswith(one):  # a grown list
        return len(one)
    least, most = 0, min(len(one), len(other)) + 1
    while most - least > 1:
        middle = (least + most) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle
    return least


def _text(data: bytes) -> str:
    return b64encode(data).decode("ascii")


def encoded(data: bytes) -> Record:
    """Return bytes as JSON data; large values become content that is stored outside the log."""
    if len(data) > _INLINE:
        return {"content": perdure.content(data)}
    return {"data": _text(data)}


def content_of(record: Mapping[str, Any]) -> str | None:
    """Return the handle of the content that `record` needs, or None."""
    content = record.get("content")
    return None if content is None else cast("str", content["handle"])


def decoded(record: Mapping[str, Any], contents: Mapping[str, bytes]) -> bytes:
    """Return the bytes that `encoded` converted to `record`."""
    handle = content_of(record)
    return b64decode(cast("str", record["data"])) if handle is None else contents[handle]


def continued(
    records: Mapping[str, Mapping[str, Any]],
    above: Mapping[str, ChannelValue],
    contents: Mapping[str, bytes],
) -> dict[str, ChannelValue] | None:
    """Return the values of `records`; `above` are the values of the previous checkpoint.

    Returns None if a record needs the values of an even earlier checkpoint.
    """
    values: dict[str, ChannelValue] = {}
    for channel, record in records.items():
        old, up = above.get(channel), record.get("back") or record.get("from")
        if up is None:
            values[channel] = combined(0, [record], contents)
        elif old is None or old.back + 1 != up:
            return None
        elif "from" in record:
            values[channel] = _grown(old, record)
        else:
            values[channel] = msgspec.structs.replace(old, back=up)
    return values


def whole_records(
    path: Sequence[Mapping[str, Mapping[str, Any]]], channel: str
) -> tuple[int, list[Mapping[str, Any]]]:
    """Return the distance to the newest record of `channel`, and the records, newest first.

    The distance is a number of checkpoints. `path` contains the records of each checkpoint, oldest
    first.
    Raises: LookupError if the path is too short.
    """
    record = path[-1][channel]
    back = cast("int", record.get("back", 0))
    at = len(path) - 1 - back
    found: list[Mapping[str, Any]] = []
    while at >= 0:
        record = path[at][channel]
        found.append(record)
        if "from" not in record:
            return back, found
        at -= cast("int", record["from"])
    raise LookupError(channel)


def combined(
    back: int, records: Sequence[Mapping[str, Any]], contents: Mapping[str, bytes]
) -> ChannelValue:
    """Return the value computed from the `records` that `whole_records` returned."""
    whole = records[-1]
    value = ChannelValue(cast("str", whole["type"]), decoded(whole, contents))
    for record in reversed(records[:-1]):
        value = _grown(value, record)
    return msgspec.structs.replace(value, back=back)


def _grown(before: ChannelValue, record: Mapping[str, Any]) -> ChannelValue:
    """Return the value that results from applying the change in `record` to `before`."""
    tail, skip = b64decode(cast("str", record["tail"])), cast("int", record["skip"])
    kept = memoryview(before.data)[skip : skip + cast("int", record["keep"])]
    data = b"".join((b64decode(cast("str", record["head"])), kept, tail))
    span = cast("int", record["from"]) + before.span
    return ChannelValue(before.type, data, 0, span, before.links + 1, before.linked + len(tail))


def window_of(values: Mapping[str, ChannelValue]) -> int:
    """Return how many checkpoints of the path are needed to read `values`."""
    return 1 + max((value.back + value.span for value in values.values()), default=0)
