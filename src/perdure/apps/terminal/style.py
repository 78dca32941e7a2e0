"""Colours by meaning, as ANSI escape codes. Without colours the text is unchanged.

The meanings are defined here, so that a role looks the same in a tree, a chat and a list. No
information is shown by colour alone.
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
    """The markup of one output: colours or none, and line-drawing characters or ASCII."""

    is_coloured: bool = False
    is_unicode: bool = True

    def paint(self, text: str, meaning: Meaning) -> str:
        """Return `text` in the colour of `meaning`."""
        code = _CODES[meaning]
        return f"\x1b[{code}m{text}\x1b[0m" if self.is_coloured and code and text else text


def style_for(stream: TextIO, environment: Mapping[str, str] = os.environ) -> Style:
    """Return the style for `stream`: no colours if $NO_COLOR is set or the terminal lacks them."""
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
