"""The folders in which known programs store their sessions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from perdure.bounds.files import is_folder

_PLACES: Mapping[str, tuple[str | None, str, str]] = {
    "Claude Code": ("CLAUDE_CONFIG_DIR", ".claude", "projects"),
    "Codex": ("CODEX_HOME", ".codex", "sessions"),
    "Gemini CLI": (None, ".gemini", "tmp"),
    "Qwen Code": (None, ".qwen", "projects"),
    "Copilot CLI": ("COPILOT_HOME", ".copilot", "session-state"),
    "Kimi CLI": ("KIMI_SHARE_DIR", ".kimi", "sessions"),
    "OpenHands": (None, ".openhands", "conversations"),
    "Amp": ("XDG_DATA_HOME", ".local/share", "amp/threads"),
    "Goose": ("XDG_DATA_HOME", ".local/share", "goose/sessions"),
    "Cursor": ("XDG_CONFIG_HOME", ".config", "Cursor/User/globalStorage"),
    "Cursor on macOS": (None, "Library/Application Support", "Cursor/User/globalStorage"),
    "Zed": ("XDG_DATA_HOME", ".local/share", "zed/threads"),
    "Zed on macOS": (None, "Library/Application Support", "Zed/threads"),
    "pi": ("PI_CODING_AGENT_DIR", ".pi/agent", "sessions"),
    "Operator": (None, ".operator", "profiles"),
}
"""Program -> environment variable of its folder, default folder below ``~``, and subfolder."""


_AIDER = ".aider.chat.history.md"
"""The name of Aider's history file, in the folder where Aider ran or in the repository's root."""


class History(msgspec.Struct, frozen=True):
    """The folder or file in which `program` stores its sessions."""

    program: str
    folder: Path


def known_histories(
    home: Path,
    environment: Mapping[str, str],
    folder: Path | None = None,
    on_closed: Callable[[OSError], object] | None = None,
) -> Iterator[History]:
    """Yield the histories of known programs that exist.

    Aider's histories are in `folder` or in a parent of it. `on_closed` is called with the error of
    each program's folder that this user may not look for.
    """
    for program in _PLACES:
        place = folder_of(program, home, environment)
        try:
            is_there = is_folder(place)
        except PermissionError as error:
            if on_closed is not None:
                on_closed(error)
            continue
        if is_there:
            yield History(program, place)
    named = environment.get("AIDER_CHAT_HISTORY_FILE")
    files = [Path(named)] if named else _files_above(folder)
    yield from (History("Aider", file) for file in files if os.path.isfile(file))  # noqa: PTH113 - False for an unreadable folder


def _files_above(folder: Path | None) -> Iterator[Path]:
    """Yield the possible paths of Aider's history, from `folder` up to the repository's root."""
    for each in () if folder is None else (folder, *folder.parents):
        yield each / _AIDER
        if os.path.exists(each / ".git"):  # noqa: PTH110 - False for an unreadable folder
            return


def folder_of(program: str, home: Path, environment: Mapping[str, str]) -> Path:
    """Return the folder in which `program` stores its sessions."""
    variable, usual, part = _PLACES[program]
    named = environment.get(variable) if variable is not None else None
    return (Path(named) if named else home / usual) / part


def places() -> str:
    """Return the places that are searched for histories, as readable text."""
    return ", ".join([*(f"~/{usual}/{part}" for _, usual, part in _PLACES.values()), _AIDER])
