"""Parse a function's docstring: the descriptions of the tool and of each parameter.

The parser reads Google style: the text before the first section describes the tool, and the entries
of an ``Args:`` section describe its parameters. Sections for programmers (``Returns:``,
``Raises:``) are ignored.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

_SECTION = re.compile(
    r"(Args|Arguments|Parameters|Returns|Return|Raises|Yields|Examples?|Notes?|See Also)\s*:\s*"
)
_ENTRY = re.compile(r"(?P<indent>\s*)\*{0,2}(?P<name>\w+)\s*(\([^)]*\))?\s*:\s*(?P<text>.*)")
_ARGUMENTS = ("Args", "Arguments", "Parameters")


class ParsedDocstring(msgspec.Struct, frozen=True):
    """A parsed docstring. Shape: `parameters` maps a name to its description on one line."""

    summary: str
    parameters: Mapping[str, str]


def parse_docstring(function: Callable[..., object]) -> ParsedDocstring:
    """Return the parsed docstring of `function`; missing parts are empty texts."""
    summary: list[str] = []
    arguments: list[str] = []
    section: str | None = None
    for line in (inspect.getdoc(function) or "").splitlines():
        if heading := _SECTION.fullmatch(line):
            section = heading[1]
        elif section is None:
            summary.append(line)
        elif section in _ARGUMENTS:
            arguments.append(line)
    return ParsedDocstring("\n".join(summary).strip(), dict(_entries(arguments)))


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the name and text of each entry; a line with more indentation continues an entry."""
    name, texts, indent = "", list[str](), 0
    for line in lines:
        depth = len(line) - len(line.lstrip())
        if name and (depth > indent or not line.strip()):
            texts.append(line.strip())
            continue
        if name:
            yield name, " ".join(text for text in texts if text)
        entry = _ENTRY.fullmatch(line)
        name, texts, indent = (entry["name"], [entry["text"]], depth) if entry else ("", [], 0)
    if name:
        yield name, " ".join(text for text in texts if text)
