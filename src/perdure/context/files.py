"""Which files a conversation read and which it changed, as a summary passes them on."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from perdure.context.prompts import tagged
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
"""Names of tools, in lower case, as pi, Operator and Claude Code spell them."""

PATH_ARGUMENTS = ("path", "file_path", "notebook_path")

_LISTS = re.compile(r"\n*<(read|modified)-files>\n.*?\n</\1-files>", re.DOTALL)


class FileLists(msgspec.Struct, frozen=True):
    """Paths as the tools were given them. Shape: sorted; none is in both."""

    read: tuple[str, ...] = ()
    modified: tuple[str, ...] = ()


def file_lists(messages: Iterable[Message], earlier: Iterable[FileLists] = ()) -> FileLists:
    """The files that the tool calls in `messages` name, added to those of `earlier` summaries."""
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
    """`summary` followed by the lists that are not empty."""
    named = (("read-files", lists.read), ("modified-files", lists.modified))
    blocks = [tagged(tag, "\n".join(paths)) for tag, paths in named if paths]
    return "\n\n".join([summary.rstrip(), *blocks])


def without_file_lists(summary: str) -> str:
    """`summary` as it was before `with_file_lists`."""
    return _LISTS.sub("", summary).strip()
