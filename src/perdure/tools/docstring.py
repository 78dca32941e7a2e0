"""What a function's docstring tells a model: what the tool is for, and what each parameter means.

Reads Google style: the text before the first section is about the tool, and the entries of an
``Args:`` section are about its parameters. Sections for programmers (``Returns:``, ``Raises:``)
are left out.
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
    """A docstring taken apart. Shape: `parameters` is name -> description, on one line each."""

    summary: str
    parameters: Mapping[str, str]


def parse_docstring(function: Callable[..., object]) -> ParsedDocstring:
    """What the docstring of `function` says; empty texts where it says nothing."""
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
    """Name and text of each entry; deeper lines go on with the text of the entry above them."""
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
