"""Files of JSON lines: split them and read each line, even an invalid one.

Invariant: the bytes between two LFs are one line, regardless of their content (CR, U+2028 and
U+0085 are data). Joining the lines of a file with LF gives the original file again. This module
does not depend on one particular session format.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator
from typing import Any, cast

import msgspec

LEVELS = 250
"""Maximum nesting of a line; `read_line` rejects a line that is nested deeper.

The interpreter allows 1,000 nested calls. A writer in Python needs two or three calls for each
level of a line, and the callers of the writer need some, too.
"""

TOO_DEEP = "it is nested too deeply"
MENDED = (
    "it holds text or numbers that JSON cannot carry exactly "
    "(half a surrogate pair, invalid UTF-8, NaN, a number out of range); they were replaced"
)

_decode = msgspec.json.Decoder().decode
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs start a file with this mark, which only states that the file is UTF-8."""


class Line(msgspec.Struct, frozen=True, gc=False):
    """One line of a file, without its LF.

    `number` is the number of the line, counted from 1. `offset` is the position of the line in
    bytes. `is_ended` is False for a last line without an LF: a program may still be writing this
    line.
    """

    number: int
    offset: int
    content: bytes
    is_ended: bool = True

    @property
    def is_blank(self) -> bool:
        """Whether the line contains only white space."""
        return not self.content or self.content.isspace()


class ReadLine(msgspec.Struct, frozen=True, gc=False):
    """The value of a line, and the problem found in it.

    `value` is valid only if `is_json` is True.
    """

    value: object
    is_json: bool = True
    problem: str | None = None

    @property
    def failure(self) -> str | None:
        """The reason why the line is not JSON; None for JSON, even if it was repaired."""
        return None if self.is_json else self.problem


def lines_of(content: bytes) -> Iterator[Line]:
    """Yield the lines of a file. A final LF ends the last line and starts no new line."""
    offset, number = 0, 0
    while offset < len(content):
        found = content.find(b"\n", offset)
        end = len(content) if found < 0 else found
        number += 1
        yield Line(number, offset, content[offset:end], found >= 0)
        offset = end + 1


def pieces_at(content: bytes, pieces: Iterable[msgspec.Raw]) -> Iterator[Line]:
    """Yield each of `pieces`, which are parts of `content`, with its line number and offset."""
    offset, number = 0, 1
    for piece in pieces:
        written = bytes(piece)
        found = content.find(written, offset)
        if found < 0:  # the pieces are in another order
            found, offset, number = content.index(written), 0, 1
        number += content.count(b"\n", offset, found)
        yield Line(number, found, written)
        offset = found + len(written)
        number += written.count(b"\n")


def read_line(content: bytes) -> ReadLine:
    """Parse the JSON text `content`.

    Shape: text that Python's reader accepts but msgspec rejects is repaired, so that it can be
    written again. Half of a surrogate pair, or an invalid byte, becomes U+FFFD; an infinite number
    or NaN becomes text. `problem` describes the repair, or the failure if `is_json` is False.
    """
    try:
        value = _decode_bounded(content)
    except RecursionError:
        return ReadLine(None, is_json=False, problem=TOO_DEEP)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _read_leniently(content)
    return ReadLine(value)


def plain_fields(content: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `content`; None if it needs the repairs of `read_line`."""
    try:
        value = _decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(value, dict) or is_too_deep(content, cast("object", value)):
        return None
    return cast("dict[str, Any]", value)


def _decode_bounded(content: bytes) -> object:
    value = _decode(content)
    if is_too_deep(content, value):
        raise RecursionError
    return value


def is_too_deep(content: bytes, value: object) -> bool:
    """Whether `value`, whose JSON is `content`, is nested more than `LEVELS` deep."""
    if len(content) <= 2 * LEVELS or content.count(b"[") + content.count(b"{") <= LEVELS:
        return False
    layer: list[object] = [value] if isinstance(value, dict | list) else []
    for _ in range(LEVELS):
        layer = [each for holder in layer for _, each in containers_in(holder)]
        if not layer:
            return False
    return True


def containers_in(holder: object) -> Iterator[tuple[object, object]]:
    """Yield the objects and arrays directly in `holder`, with their keys or positions."""
    held: Iterable[tuple[object, object]] = (
        cast("dict[object, object]", holder).items()
        if isinstance(holder, dict)
        else enumerate(cast("list[object]", holder))
    )
    for key, each in held:
        if isinstance(each, dict | list):
            yield key, cast("object", each)


def _read_leniently(content: bytes) -> ReadLine:
    if content.startswith(_BYTE_ORDER_MARK):
        return read_line(content.removeprefix(_BYTE_ORDER_MARK))
    text = content.decode("utf-8", "replace")
    try:
        value = json.loads(text, parse_constant=str, parse_float=_float, parse_int=_int)
        if _SURROGATE_ESCAPE.search(text):  # nothing else makes one: the text is from UTF-8
            value = _repair_surrogates(value)
        _decode_bounded(msgspec.json.encode(value))
    except RecursionError:
        return ReadLine(None, is_json=False, problem=TOO_DEEP)
    except ValueError as error:
        return ReadLine(None, is_json=False, problem=f"it is not JSON ({_reason(error)})")
    return ReadLine(value, problem=MENDED)


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)


def _float(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _int(text: str) -> int | str:
    return int(text) if len(text) < 1000 else text


def _repair_surrogates(value: object) -> object:
    if isinstance(value, str):
        return _LONE_SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_repair_surrogates(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {
            cast("str", _repair_surrogates(key)): _repair_surrogates(item)
            for key, item in fields.items()
        }
    return value
