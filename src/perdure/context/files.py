"""Find the files that a conversation read and changed, for the lists of files in its summary."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from perdure.context.prompts import wrap_in_tag
from perdure.session.messages import Message, ToolCallPart

READING = frozenset({"read", "read_file", "readfile", "notebookread", "notebook_read"})
CHANGING = frozenset(
    {
        "write",
        "write_file",
        "writefile",
        "edit",
        "edit_file",
        "editfile",
        "multiedit",
        "multi_edit",
        "notebookedit",
        "notebook_edit",
    }
)
"""Names, in lower case, of tools that change files in pi, Operator and Claude Code."""

PATH_ARGUMENTS = ("path", "file_path", "notebook_path")

_TAGS = ("read-files", "modified-files")


class FileLists(msgspec.Struct, frozen=True):
    """Lists of file paths, as the tool calls contain them.

    Shape: both lists are sorted; no path is in both lists.
    """

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


def file_lists(messages: Iterable[Message], earlier: Iterable[FileLists] = ()) -> FileLists:
    """Return the files named by tool calls in `messages`, and the files in the lists `earlier`."""
    read: set[str] = set()
    modified: set[str] = set()
    for lists in earlier:
        read.update(lists.read)
        modified.update(lists.modified)
    for message in messages:
        for call in message.tool_calls:
            name, path = call.name.lower(), _path_of(call)
            if path and name in READING:
                read.add(path)
            elif path and name in CHANGING:
                modified.add(path)
    return FileLists(tuple(sorted(read - modified)), tuple(sorted(modified)))


def _path_of(call: ToolCallPart) -> str | None:
    for argument in PATH_ARGUMENTS:
        value = call.args.get(argument)
        if isinstance(value, str) and value:
            return value
    return None


def with_file_lists(summary: str, lists: FileLists) -> str:
    """Return `summary` followed by the non-empty lists."""
    named = zip(_TAGS, (lists.read, lists.modified), strict=True)
    blocks = [wrap_in_tag(tag, "\n".join(paths)) for tag, paths in named if paths]
    return "\n\n".join([summary.rstrip(), *blocks])


def without_file_lists(summary: str) -> str:
    """Return `summary` without the text that `with_file_lists` added."""
    for tag in _TAGS:
        summary = _without(summary, f"<{tag}>\n", f"\n</{tag}>")
    return summary.strip()


def _without(text: str, opening: str, closing: str) -> str:
    """Return `text` without the part from `opening` to `closing` and the line feeds before it."""
    pieces: list[str] = []
    at = 0
    while (begin := text.find(opening, at)) >= 0:
        end = text.find(closing, begin + len(opening))
        if end < 0:
            break
        pieces.append(text[at:begin].rstrip("\n"))
        at = end + len(closing)
    return "".join((*pieces, text[at:]))
