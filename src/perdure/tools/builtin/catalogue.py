"""The built-in tools by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perdure.errors import ConfigError
from perdure.tools.builtin.delegation import invoke_agent
from perdure.tools.builtin.desktop import notify, read_clipboard
from perdure.tools.builtin.edits import edit_file, write_file
from perdure.tools.builtin.files import list_directory, read_file
from perdure.tools.builtin.git import git_commit, git_status
from perdure.tools.builtin.media import read_media
from perdure.tools.builtin.search import search_files
from perdure.tools.builtin.shell import run_command
from perdure.tools.builtin.web import http_request, web_search
from perdure.tools.decorator import tool
from perdure.tools.spec import ToolOutput, ToolSpec


@tool(effect="read", on_unknown="retry")
async def end_session(reason: str) -> ToolOutput:
    """End this session, because what it was for is done or cannot be done.

    It takes effect when your answer to this turn is finished.

    Args:
        reason: Why it ends, in one sentence.
    """
    text = f"The session ends when this turn is finished ({reason})."
    return ToolOutput(text, ends_session=True)


BUILTIN: Mapping[str, ToolSpec] = {
    spec.name: spec
    for spec in (
        read_file,
        list_directory,
        search_files,
        read_media,
        write_file,
        edit_file,
        run_command,
        git_status,
        git_commit,
        http_request,
        web_search,
        read_clipboard,
        notify,
        invoke_agent,
        end_session,
    )
}
"""Name -> tool, those that only read first."""


def with_names(
    tools: Iterable[str | ToolSpec | Callable[..., Any]],
) -> tuple[ToolSpec | Callable[..., Any], ...]:
    """Return `tools` with each name replaced by its built-in tool.

    Raises: ConfigError for a name without a built-in tool.
    """
    return tuple(_builtin_tool(each) if isinstance(each, str) else each for each in tools)


def _builtin_tool(name: str) -> ToolSpec:
    if name not in BUILTIN:
        raise ConfigError(f"there is no built-in tool {name!r}; there are: {', '.join(BUILTIN)}")
    return BUILTIN[name]
