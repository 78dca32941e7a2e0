"""Search for text in the files of the session's working directory.

The search is for plain text, not for a regular expression. A model can write a Python regular
expression that takes exponential time, and such a search cannot be interrupted. The number of bytes
read is limited, so the time is limited too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

from msgspec import Meta

from perdure.tools.builtin.files import lines_of, shown_path, text_of
from perdure.tools.decorator import tool
from perdure.tools.paths.jail import Jail, OpenPath
from perdure.tools.paths.walk import TooMuch, files_below
from perdure.tools.spec import ToolCall

MAX_MATCHES = 200
MAX_LINE_CHARACTERS = 200
MAX_READ_BYTES = 64 * 1024 * 1024


@tool(effect="read", on_unknown="retry")
def search_files(
    pattern: Annotated[str, "The text to look for; not a regular expression.", Meta(min_length=1)],
    path: Annotated[str, "The directory to search, relative to the working directory."] = ".",
    glob: Annotated[str | None, "Only in files that fit, e.g. *.py or src/**/*.py"] = None,
    *,
    ignore_case: Annotated[bool, "Whether capital and small letters are the same."] = False,
    call: ToolCall,
) -> str:
    """Search the text files below a directory of the working directory for a text.

    Returns "path:line: text" for each matching line. Binary files, files over 8 MiB, links and .git
    are left out.
    """
    with Jail.of(call).open_path(path) as start:
        lines = list(islice(_output(start, pattern, glob, is_folded=ignore_case), MAX_MATCHES + 1))
    if len(lines) > MAX_MATCHES:
        lines[MAX_MATCHES:] = [f"[stopped after {MAX_MATCHES} lines; give a path or a glob]"]
    return "\n".join(lines) or "[not found]"


def _output(start: OpenPath, pattern: str, glob: str | None, *, is_folded: bool) -> Iterator[str]:
    """Yield the lines with `pattern`, file by file, and a last line if the search was cut short."""
    needle = pattern.casefold() if is_folded else pattern
    try:
        for names, text in _texts(start, glob):
            for number, line in enumerate(lines_of(text), 1):
                if needle in (line.casefold() if is_folded else line):
                    yield f"{shown_path(names)}:{number}: {line.rstrip()[:MAX_LINE_CHARACTERS]}"
    except TooMuch:
        yield "[stopped: there is too much to search; give a path or a glob]"


def _texts(start: OpenPath, glob: str | None) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the text of each searchable file, with the names in its path from the jail's root.

    Raises: TooMuch if there are too many files, or more bytes than a search is allowed to read.
    """
    read_bytes = 0
    for names, descriptor in files_below(start, glob):
        read_bytes += os.fstat(descriptor).st_size
        if read_bytes > MAX_READ_BYTES:
            raise TooMuch
        try:
            yield names, text_of(descriptor)
        except (ValueError, OSError):
            continue  # not text, or unreadable
