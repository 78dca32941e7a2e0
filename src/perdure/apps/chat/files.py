"""Lists the files of a session's folder for the completion of file names."""

from __future__ import annotations

import os
from pathlib import Path

from perdure.session.printable import safe

MOST_FILES = 20_000

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})


def files_below(folder: Path) -> list[str]:
    """Return at most `MOST_FILES` names of files below `folder`, the least nested first.

    Skips the folders of version control and of installed packages, and names with control
    characters.
    """
    found: list[str] = []
    pending = [""]
    while pending and len(found) < MOST_FILES:
        deeper: list[str] = []
        for inside in pending:
            names, folders = _listed(folder, inside)
            found += names
            deeper += folders
            if len(found) >= MOST_FILES:
                break
        pending = deeper
    return found[:MOST_FILES]


def _listed(folder: Path, inside: str) -> tuple[list[str], list[str]]:
    """Return the files and folders directly in a folder, in the order of their names.

    The search stops at the file with the number `MOST_FILES`, so later folders are missing.
    """
    try:
        with os.scandir(folder / inside) as entries:
            known = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return [], []
    files: list[str] = []
    folders: list[str] = []
    for entry in known:
        if entry.name in _SKIPPED or safe(entry.name) != entry.name or "\n" in entry.name:
            continue
        name = f"{inside}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            folders.append(f"{name}/")
        elif entry.is_file():
            files.append(name)
            if len(files) == MOST_FILES:
                break
    return files, folders
