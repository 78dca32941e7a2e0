"""Printable text: control characters are made visible, so that no terminal interprets them.

Pure. The contents of a log come from models, tools and other people. If control characters were
printed raw, they could move the cursor, change the window's title, reverse the order of following
text, or hide it.
"""

from __future__ import annotations

import re

_CONTROL = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0, DEL and C1, except tab and line feed
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"  # direction marks, overrides and isolates
    "\u2028\u2029\ufeff\ufff9-\ufffb"  # line separators, byte order mark, annotations
    "\ud800-\udfff]"  # half characters, which cannot be sent to a terminal
)
_UNSEEN = (
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200c\u200e\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\udfff\ufe00-\ufe0e"
    "\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]"
    "|(?<![\u2190-\u2bff\u3030\u303d\ufe0f\U0001f000-\U0001fbff])[\u200d\ufe0f]"
)
"""Invisible characters and special spaces, except the joiners and selectors inside emoji.
"""
_JSON_CONTROL = "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufeff\ufff9-\ufffb]"


def safe(text: str) -> str:
    """Return `text` with a U+FFFD for every control character; tabs and line feeds stay."""
    return re.sub(_CONTROL, "\N{REPLACEMENT CHARACTER}", text)


def reveal(text: str) -> str:
    """Return `text` with invisible characters as codes such as ``<U+200B>``.

    Tabs and line feeds stay.

    Use this function for a text on which a person decides, because two texts that look the same can
    differ.
    """
    return re.sub(_UNSEEN, lambda found: f"<U+{ord(found[0]):04X}>", text)


def json_escaped(document: str) -> str:
    r"""Return the JSON `document`, equal in value, with DEL, C1 and bidi characters as ``\uXXXX``.

    JSON itself escapes the C0 control characters. DEL, C1 and bidi characters occur only inside
    strings of a JSON document, so their escapes do not change its value.
    """
    return re.sub(_JSON_CONTROL, lambda found: f"\\u{ord(found[0]):04x}", document)
