"""Read files, and list directories, inside the session's working directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta

from perdure.errors import InvalidArguments, ToolError
from perdure.tools.decorator import tool
from perdure.tools.paths.jail import Jail, OpenPath
from perdure.tools.paths.walk import MAX_VISITED, TooMuch, entries_below, files_below, matches
from perdure.tools.spec import DEFAULT_OUTPUT_BYTES, ToolCall

MAX_FILE_BYTES = 8 * 1024 * 1024
MAX_ENTRIES = 200
MAX_FILES = 200

_SNIFFED_BYTES = 8 * 1024
_PAGE_BYTES = DEFAULT_OUTPUT_BYTES - 1024  # leaves room for the line that says how to continue
_Count = Annotated[int, Meta(ge=1)]
_MARKS = {"file": "", "directory": "/", "link": " (link)", "other": " (special file)"}


@tool(effect="read", on_unknown="retry")
def read_file(
    path: Annotated[str, "The file, relative to the working directory; with glob a directory."],
    offset: Annotated[_Count, "The first line to read, counted from 1."] = 1,
    limit: Annotated[_Count | None, "How many lines to read; left out: all."] = None,
    glob: Annotated[
        str | None, "Read all files of the directory that fit, e.g. *.py or src/**/*.py"
    ] = None,
    *,
    call: ToolCall,
) -> str:
    """Read a UTF-8 text file in the working directory, or all files of a directory that fit a glob.

    A long file is cut at the end of a line, and a last line in brackets says where to continue.
    With several files, a line with the path precedes each.
    """
    if glob is not None:
        if offset != 1 or limit is not None:
            raise InvalidArguments(call.tool, "offset and limit are for one file, without a glob")
        with Jail.of(call).directory(path) as start:
            return "\n".join(_several(start, glob)) or "[no file fits]"
    try:
        with Jail.of(call).file(path) as descriptor:
            text = text_of(descriptor)
    except ValueError as error:
        raise ToolError(call.tool, f"the file cannot be read: {error}") from None
    lines = lines_of(text)
    if not lines:
        return "[the file is empty]"
    if offset > len(lines):
        raise ToolError(call.tool, f"the file has {len(lines)} lines, none at offset {offset}")
    return _page(lines, offset - 1, limit or len(lines))


@tool(effect="read", on_unknown="retry")
def list_directory(
    path: Annotated[str, "The directory, relative to the working directory."] = ".",
    *,
    recursive: Annotated[bool, "Whether to go into its directories too."] = False,
    glob: Annotated[str | None, "Only what fits, e.g. *.py or src/**/*.py"] = None,
    call: ToolCall,
) -> str:
    """List the content of a directory in the working directory, one entry per line.

    Directories end with a slash. Links are shown, not followed; .git is not entered.
    """
    with Jail.of(call).directory(path) as start:
        found = entries_below(start, is_recursive=recursive)
        shown: list[str] = []
        for visited, entry in enumerate(found, 1):
            if len(shown) == MAX_ENTRIES or visited == MAX_VISITED:
                shown.append(f"[stopped after {len(shown)} entries; give a path or a glob]")
                break
            if glob is None or matches(glob, entry.names):
                shown.append(shown_path(entry.names) + _MARKS[entry.kind])
    return "\n".join(shown) or "[nothing there]"


def _several(start: OpenPath, glob: str) -> Iterator[str]:
    """Yield each file below `start` that matches `glob`: its path and, if it is text, its text."""
    left_bytes = MAX_FILE_BYTES
    try:
        for number, (names, descriptor) in enumerate(files_below(start, glob)):
            left_bytes -= os.fstat(descriptor).st_size
            if number == MAX_FILES or left_bytes < 0:
                raise TooMuch
            yield f"== {shown_path(names)} =="
            try:
                yield text_of(descriptor).removesuffix("\n")
            except ValueError as error:
                yield f"[not read: {error}]"
            except OSError:
                yield "[not read: it cannot be read to its end]"
    except TooMuch:
        yield "[stopped: there is more; give a narrower glob]"


def shown_path(names: tuple[str, ...]) -> str:
    """Return the path that consists of `names`, on one line, with special characters escaped."""
    path = "/".join(names)
    return path if path.isprintable() else path.encode("unicode_escape", "replace").decode()


def text_of(descriptor: int) -> str:
    """Return the text of an open file.

    Raises: ValueError if the text is too large, binary, or not UTF-8.
    """
    with os.fdopen(os.dup(descriptor), "rb") as file:
        content = file.read(MAX_FILE_BYTES + 1)
    return text_in(content)


def text_in(content: bytes) -> str:
    """Return `content` as text.

    Raises: ValueError if the text is too large, binary, or not UTF-8.
    """
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(f"it is larger than {MAX_FILE_BYTES} bytes")
    if b"\0" in content[:_SNIFFED_BYTES]:
        raise ValueError("it is binary")
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8 text") from None


def lines_of(text: str) -> list[str]:
    """Return the lines of `text`; only a line feed ends a line."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def _page(lines: list[str], start: int, count: int) -> str:
    """Return `count` lines from `start` on, or as many as the output limit allows; at least one."""
    wanted = lines[start : start + count]
    size_bytes = 0
    for fitting, line in enumerate(wanted):
        size_bytes += len(line.encode()) + 1
        if size_bytes > _PAGE_BYTES and fitting:
            wanted = wanted[:fitting]
            break
    end = start + len(wanted)
    text = "\n".join(wanted)
    if end == len(lines):
        return text
    return f"{text}\n[lines {start + 1} to {end} of {len(lines)}; go on with offset {end + 1}]"
