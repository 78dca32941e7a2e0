"""Colours by meaning, as plain ANSI codes; with colour off the text is returned as it is.

Meanings are named once here, so that a role looks the same in a tree, a chat and a list, and
nothing is said by colour alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TextIO

import msgspec

Meaning = Literal[
    "user",
    "assistant",
    "tool",
    "thinking",
    "system",
    "note",
    "label",
    "leaf",
    "faint",
    "strong",
    "good",
    "warning",
    "bad",
    "plain",
]

_CODES: Mapping[Meaning, str] = {
    "user": "1;36",
    "assistant": "32",
    "tool": "33",
    "thinking": "2;3",
    "system": "35",
    "note": "35",
    "label": "1;33",
    "leaf": "1;35",
    "faint": "2",
    "strong": "1",
    "good": "32",
    "warning": "33",
    "bad": "1;31",
    "plain": "",
}


CODES = tuple({f"\x1b[{code}m" for code in _CODES.values() if code} | {"\x1b[0m"})
"""Every sequence that `Style.paint` writes."""


class Style(msgspec.Struct, frozen=True):
    """How text is marked up for one output: with colours or without, lines or plain ASCII."""

    is_coloured: bool = False
    is_unicode: bool = True

    def paint(self, text: str, meaning: Meaning) -> str:
        """`text` in the colour of `meaning`."""
        code = _CODES[meaning]
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_coloured and code and text else text


def style_for(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Style:
    """The style for `stream`: colours only on a terminal, unless $NO_COLOR or a dumb one."""
    is_coloured = (
        stream.isatty()
        and not environment.get("NO_COLOR")
        and environment.get("TERM", "") not in ("", "dumb")
    )
    return Style(is_coloured, is_unicode=_can_encode(stream, "│├●◆…⋮"))


def _can_encode(stream: TextIO, text: str) -> bool:
    try:
        text.encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
