"""Mutated real files: lines are cut, damaged and moved; values are replaced by invalid ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, cast

_BAD_TEXTS = (
    *("", "root", "a", "\ud83d", "\u2028\u0085", "\x00", "x" * 5_000, "9" * 5_000),
    *("media://sha256-" + "0" * 64, "data:image/png;base64,", "=", "2026-13-01", "session", "leaf"),
    *("<environment_context>", '{"output":{', "Exit code: 0"),
)
_BAD_NUMBERS: tuple[object, ...] = (
    *(0, -1, 1e308, -0.0, 2**63, 2**200, -(2**63), 1.5, float("nan"), float("inf")),
)
_BAD_VALUES: tuple[Any, ...] = (
    *(*_BAD_TEXTS, *_BAD_NUMBERS),
    *(None, True, False, [], {}, [[]], [None], {"": ""}, [{}], {"type": None}),
)
_KEYS = ("type", "id", "role", "content", "parentId", "parent_id", "message", "payload", "\ud800")
_DEEP = (10, 400, 900, 20_000)


def mutated(files: Sequence[bytes], seed: int) -> bytes:
    """Return a damaged version of one of `files`, which depends only on `seed`."""
    chance = random.Random(seed)
    lines = chance.choice(files).split(b"\n")
    if chance.random() < 0.2:  # two files run together
        lines += chance.choice(files).split(b"\n")
    for _ in range(chance.choice((1, 1, 2, 3, 5, 10, 30))):
        chance.choice(_MUTATIONS)(lines, chance)
    content = b"\n".join(lines)
    return content if chance.random() < 0.9 else content[: chance.randrange(len(content) + 1)]


# -- lines


def _cut(lines: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(lines))
    lines[at] = lines[at][: chance.randrange(len(lines[at]) + 1)]


def _spoil(lines: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(lines))
    byte = chance.randrange(len(lines[at]) + 1)
    noise = chance.choice((chance.randbytes(3), b'"', b"}", b"\\u", b"\xff", b"\r", b"\x00"))
    lines[at] = lines[at][:byte] + noise + lines[at][byte + chance.randrange(3) :]


def _repeat(lines: list[bytes], chance: random.Random) -> None:
    times = chance.choice((1, 1, 2, 50))
    at, where = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[where:where] = [lines[at]] * times


def _swap(lines: list[bytes], chance: random.Random) -> None:
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _reverse(lines: list[bytes], chance: random.Random) -> None:
    begin = chance.randrange(len(lines))
    end = begin + chance.randrange(20)
    lines[begin:end] = lines[begin:end][::-1]


def _drop(lines: list[bytes], chance: random.Random) -> None:
    if len(lines) > 1:
        del lines[chance.randrange(len(lines))]


def _insert(lines: list[bytes], chance: random.Random) -> None:
    depth = chance.choice(_DEEP)
    noise = (b"", b"   ", b"null", b"[]", b'{"type":"session"}', b"[" * depth, b'{"a":' * depth)
    lines.insert(chance.randrange(len(lines) + 1), chance.choice(noise))


def _join(lines: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(lines))
    lines[at : at + 2] = [b"".join(lines[at : at + 2])]


# -- values in a line


def _change_value(lines: list[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(lines))
    record = _record(lines[at])
    if record is None:
        return
    holder, key = _somewhere(record, chance)
    match chance.randrange(6):
        case 0:
            del holder[key]
        case 1:
            holder[key] = _nested(chance.choice(_DEEP[:3]), holder[key])
        case 2:
            other = _record(chance.choice(lines))
            if other is not None:
                taken, where = _somewhere(other, chance)
                holder[key] = taken[where]
        case 3:
            record[chance.choice(_KEYS)] = holder[key]
        case _:
            holder[key] = chance.choice(_BAD_VALUES)
    lines[at] = _written(record, chance)


def _cross_ids(lines: list[bytes], chance: random.Random) -> None:
    """Give a record the parent or the id of another one, which causes cycles and duplicates."""
    at = chance.randrange(len(lines))
    record, other = _record(lines[at]), _record(chance.choice(lines))
    if record is None or other is None:
        return
    ids = ("id", "uuid", "parentId", "parent_id", "parentUuid", "target_id", "targetId")
    known = [other[name] for name in ids if name in other]
    own = [name for name in ids if name in record]
    if known and own:
        record[chance.choice(own)] = chance.choice(known)
        lines[at] = _written(record, chance)


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value) if isinstance(value, dict) and value else None


def _somewhere(record: dict[str, Any], chance: random.Random) -> tuple[Any, Any]:
    """Return a container in `record`, and a key or index in it."""
    holder: Any = record
    while True:
        keys = list(cast("dict[str, Any]", holder)) if _is_object(holder) else range(len(holder))
        key: Any = chance.choice(keys)
        below: Any = holder[key]
        if not (_is_object(below) or isinstance(below, list)) or chance.random() < 0.25:
            return holder, key
        if not below:
            return holder, key
        holder = cast("Any", below)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _nested(depth: int, value: object) -> object:
    for _ in range(min(depth, 400)):
        value = [value]
    return value


def _written(record: dict[str, Any], chance: random.Random) -> bytes:
    try:
        text = json.dumps(record, ensure_ascii=chance.random() < 0.5, separators=(",", ":"))
    except RecursionError:  # mutated again and again
        return b"[" * _DEEP[-1]
    return text.encode("utf-8", "surrogatepass").replace(b"\n", b" ")


_MUTATIONS: tuple[Callable[[list[bytes], random.Random], None], ...] = (
    *(_cut, _spoil, _repeat, _swap, _reverse, _drop, _insert, _join),
    *(_change_value,) * 8,
    *(_cross_ids,) * 3,
)
