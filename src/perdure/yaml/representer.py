"""Choose the YAML style of texts. Importing this module loads the YAML library."""

from __future__ import annotations

import re
from typing import Any, cast

from ruamel.yaml import YAML
from ruamel.yaml.representer import SafeRepresenter

__all__ = ["YAML", "PlainRepresenter"]

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_TAKEN = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_BLOCK = re.compile(
    r"(?![\s\S]*[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff])\S(?:[\s\S]*\S)?\n?"
)
"""Matches text that can be a block: no control character, no white space at its ends."""


class PlainRepresenter(SafeRepresenter):
    """The YAML library's representer without anchors and aliases.

    A repeated value is written in full each time.
    """

    def ignore_aliases(self, data: Any) -> bool:
        """Return True for any value, so that no alias is written."""
        return True


def _text(representer: Any, text: str) -> Any:
    return representer.represent_scalar("tag:yaml.org,2002:str", text, style=_style(text))


def _style(text: str) -> str | None:
    if _PLAIN.fullmatch(text) and text.lower() not in _TAKEN:
        return None
    is_block = "\n" in text and _BLOCK.fullmatch(text) and " \n" not in text
    return "|" if is_block else '"'


cast("Any", PlainRepresenter).add_representer(str, _text)
