"""Plain data as YAML: the same value always gives the same bytes.

Keys are in alphabetical order, lists in their own. Text is plain if it is unambiguous, a block if
it has several lines, otherwise in double quotes; lines are never folded.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Mapping
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_TAKEN = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_BLOCK = re.compile(
    r"(?![\s\S]*[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])\S(?:[\s\S]*\S)?\n?"
)
"""Text that a block can hold: no control character, no white space at its ends."""


def yaml_of(data: Mapping[str, object]) -> str:
    """Return the JSON object `data` as YAML."""
    writer: Any = YAML(typ="safe", pure=True)
    writer.Representer = _Representer
    writer.default_flow_style = False
    writer.allow_unicode = True
    writer.width = sys.maxsize
    writer.map_indent, writer.sequence_indent, writer.sequence_dash_offset = 2, 4, 2
    written = io.StringIO()
    writer.dump(_ordered(data), written)
    return written.getvalue()


def _ordered(value: object) -> object:
    """Return `value` as dicts and lists, with sorted keys."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        return {key: _ordered(fields[key]) for key in sorted(fields)}
    if isinstance(value, list | tuple):
        return [_ordered(item) for item in cast("list[object]", value)]
    return value


class _Representer(SafeRepresenter):
    """The library's representer without anchors: repeated values are written out."""

    def ignore_aliases(self, data: Any) -> bool:
        """Return True for any value."""
        return True


def _text(representer: Any, text: str) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    if _PLAIN.fullmatch(text) and text.lower() not in _TAKEN:
        return None
    is_block = "\n" in text and _BLOCK.fullmatch(text) and " \n" not in text
    return "|" if is_block else '"'


cast("Any", _Representer).add_representer(str, _text)
