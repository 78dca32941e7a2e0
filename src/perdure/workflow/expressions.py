"""Parse the placeholders of a template, ``{{inputs.name | filter}}``, without filling them.

A ``{{`` without a ``}}`` on the same line is plain text. Every other placeholder that cannot be
parsed is an error. A placeholder cannot execute code.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, cast, get_args

import msgspec

Root = Literal["inputs", "ctx", "run.outputs", "run.id"]
FilterName = Literal["default", "json", "length", "read_file"]
FILTERS: tuple[FilterName, ...] = get_args(FilterName)

LONGEST = 1000
"""Maximum length of a placeholder.

A ``{{`` without a ``}}`` within this many characters is text.
"""

SHOWN = 60
"""Maximum number of characters of a placeholder that an error message shows."""

_NAME = "[A-Za-z0-9_-]+"
_QUOTED = r'"(?:[^"\\]|\\.)*"' + r"|'(?:[^'\\]|\\.)*'"
_REFERENCE = re.compile(
    rf"(?P<root>inputs|ctx|run\.outputs)(?:\.(?P<plain>{_NAME})|\[\s*(?P<quoted>{_QUOTED})\s*\])"
    r"|(?P<id>run\.id)"
)
_PIECE = re.compile(rf"(?:{_QUOTED}|[^|\"'])+")
_INSIDE = re.compile(rf"(?:{_QUOTED}|(?!\{{\{{|\}}\}})[^\"'])*+")
_FILTER = re.compile(r"(?P<name>[a-z_]+)\s*+(?:\(\s*+(?P<argument>.*)\))?", re.DOTALL)

FORM = (
    'expected inputs.NAME, ctx.NAME, run.outputs["NODE"] or run.id, perhaps with filters '
    f"({', '.join(FILTERS)})"
)


class Filter(msgspec.Struct, frozen=True):
    """A filter in a placeholder, which transforms the value.

    Only the filter ``default`` has an `argument`.
    """

    name: FilterName
    argument: str | int | float | bool | None = None


class Placeholder(msgspec.Struct, frozen=True):
    """A reference to a value. Shape: `name` is "" for ``run.id``."""

    root: Root
    name: str = ""
    filters: tuple[Filter, ...] = ()

    @property
    def has_default(self) -> bool:
        """Return True if the placeholder has a default for a missing value."""
        return any(each.name == "default" for each in self.filters)


class Template(msgspec.Struct, frozen=True):
    """The texts and placeholders of a template in their order; `faults` are the parse errors."""

    parts: tuple[str | Placeholder, ...]
    faults: tuple[str, ...] = ()

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        """Return the placeholders among the parts."""
        return tuple(part for part in self.parts if isinstance(part, Placeholder))


def template_of(text: str) -> Template:
    """Parse `text` as a template."""
    parts: list[str | Placeholder] = []
    faults: list[str] = []
    begun = 0
    for start, end in _spans(text):
        inner = text[start + 2 : end]
        understood = _understood(inner)
        if isinstance(understood, str):
            faults.append(f"{_excerpt(inner)} cannot be filled in: {understood}")
            continue
        parts += [text[begun:start], understood]
        begun = end + 2
    parts.append(text[begun:])
    return Template(tuple(part for part in parts if part != ""), tuple(faults))


def _spans(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each placeholder, in the order of the text."""
    at = text.find("{{")
    while at >= 0:
        end = _closing(text, at + 2)
        if end >= 0:
            yield at, end
        at = text.find("{{", at + 2 if end < 0 else end + 2)


def _closing(text: str, start: int) -> int:
    """Return the offset of the ``}}`` that closes the ``{{`` before `start`; -1 if there is none.

    A ``}}`` inside a closed pair of quotes does not count.
    """
    line = text.find("\n", start, start + LONGEST)
    limit = min(len(text), start + LONGEST) if line < 0 else line
    found = _INSIDE.match(text, start, limit)
    end = start if found is None else found.end()
    if text.startswith("}}", end) and end + 2 <= limit:
        return end
    rough = text.find("}}", start, limit)
    return rough if rough >= 0 and text.find("{{", start, rough) < 0 else -1


def _understood(inner: str) -> Placeholder | str:
    """Parse `inner`, the text of a placeholder; return the placeholder or an error message."""
    pieces = _PIECE.findall(inner)
    if "|".join(pieces) != inner:
        return FORM
    found = _REFERENCE.fullmatch(pieces[0].strip()) if pieces else None
    if found is None:
        is_secret = inner.strip().startswith("secrets.")
        return "secrets are never filled into a prompt" if is_secret else FORM
    filters = [_filter(piece.strip()) for piece in pieces[1:]]
    wrong = [each for each in filters if isinstance(each, str)]
    if wrong:
        return wrong[0]
    root = cast("Root", found["root"] or "run.id")
    name = found["plain"] or _unquoted(found["quoted"] or '""')
    if not isinstance(name, str):
        return FORM
    return Placeholder(root, name, tuple(each for each in filters if isinstance(each, Filter)))


def _filter(text: str) -> Filter | str:
    found = _FILTER.fullmatch(text)
    if found is None or found["name"] not in FILTERS:
        return f"{text[:SHOWN]!r} is no filter; there are: {', '.join(FILTERS)}"
    name, written = cast("FilterName", found["name"]), found["argument"]
    if name != "default":
        return Filter(name) if not (written or "").strip() else f"{name} takes nothing in brackets"
    value = _unquoted((written or "").strip())
    if value is None:
        return 'default needs a text, a number, true or false: default("...")'
    return Filter(name, value)


def _unquoted(written: str) -> str | int | float | bool | None:
    """Return the value of the literal `written`; None if the text is not a literal."""
    if written.startswith("'"):
        return re.sub(r"\\(.)", r"\1", written[1:-1]) if len(written) > 1 else None
    try:
        return msgspec.json.decode(written, type=str | int | float | bool)
    except (msgspec.DecodeError, ValueError):
        return None


def _excerpt(inner: str) -> str:
    text = " ".join(inner.split())
    return f"{{{{{text if len(text) <= SHOWN else text[: SHOWN - 1] + '…'}}}}}"
