"""The `repr` of values: one short line for any content.

Long contents are never shown in full: long text is cut, bytes are only counted, and a mapping shows
only its keys. Contents are shortened because environments, headers and tool arguments may contain
secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence, Set
from typing import cast

import msgspec

_TEXT = 48
"""Number of characters of a text that are shown."""

_ITEMS = 3
"""Number of items of a list, or of keys of a mapping, that are shown."""

_VALUE = 120
"""Maximum characters of a value inside another value. A longer value is shown as type or size."""

_WHOLE = 300

_PASSWORD = re.compile(r"(://[^/:@\s]*:)[^/@\s]*@")
"""Matches the password in an address."""


def short_repr(self: object) -> str:
    """Return the class name of the value `self`, and the fields that differ from their defaults.

    Shape: one line of at most about 300 characters, such as ``Message(role='user', parts=(…))``.
    """
    value = cast("msgspec.Struct", self)
    shown: list[str] = []
    for field in msgspec.structs.fields(value):
        given = getattr(value, field.name)
        if given is msgspec.UNSET or _is_default(field, given):
            continue
        shown.append(f"{field.name}={_shown(given)}")
    name = type(value).__name__
    while sum(map(len, shown)) + 2 * len(shown) > _WHOLE:
        del shown[len(shown) - 1 - (shown[-1] == "…")]
        shown = [each for each in shown if each != "…"] + ["…"]
    return f"{name}({', '.join(shown)})"


def _is_default(field: msgspec.structs.FieldInfo, given: object) -> bool:
    if field.default_factory is not msgspec.NODEFAULT:
        return isinstance(given, Sequence | Mapping | Set) and not given
    return field.default is not msgspec.NODEFAULT and given is field.default


def _shown(given: object) -> str:
    if isinstance(given, str):
        text = _PASSWORD.sub(r"\1…@", given[: 2 * _TEXT])
        return repr(text) if len(text) <= _TEXT else f"{text[: _TEXT - 1]!r}…"
    if isinstance(given, bytes | msgspec.Raw):
        return f"<{len(bytes(given))} bytes>"
    if isinstance(given, Mapping):
        return (
            f"{{{_listed([str(key)[:_TEXT] for key in cast('Mapping[object, object]', given)])}}}"
        )
    if isinstance(given, Sequence | Set):
        items = list(cast("Sequence[object] | Set[object]", given))
        whole = f"({_listed([_shown(item) for item in items[:_ITEMS]], len(items))})"
        return whole if len(whole) <= _VALUE else f"({len(items)} {_kinds(items)})"
    if callable(given):
        return f"<{getattr(cast('object', given), '__name__', 'callable')}>"
    text = repr(given)
    return text if len(text) <= _VALUE else f"{type(given).__name__}(…)"


def _listed(items: Sequence[str], count: int | None = None) -> str:
    """Return the first `items` as text, and how many were left out; `count` is the total number."""
    more = (len(items) if count is None else count) - _ITEMS
    return ", ".join([*items[:_ITEMS], *([f"… {more} more"] if more > 0 else [])])


def _kinds(items: Sequence[object]) -> str:
    """Return the class name of `items`, or "items" if they have several classes."""
    names = {type(item).__name__ for item in items}
    return names.pop() if len(names) == 1 else "items"


class ShortRepr(msgspec.Struct, frozen=True):
    """Base class of values whose `repr` is `short_repr`."""

    __repr__ = short_repr
