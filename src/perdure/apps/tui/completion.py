"""Completion of ``/commands`` and of ``@files`` in the folder of the session."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

import msgspec

from perdure.apps.picker.selection import fold, rank, wanted_of
from perdure.models.protocol import ThinkingLevel
from perdure.session.printable import safe

MOST_FILES = 20_000
MOST_OFFERS = 50

_SKIPPED = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv"})


class Offers(msgspec.Struct, frozen=True):
    """What can complete the text before the cursor, from character `start` of its line on.

    `kind` "file": accepting an offer attaches it.
    """

    kind: str
    start: int
    values: tuple[str, ...]
    hints: Mapping[str, str] = {}


def offers_for(
    line: str, column: int, *, is_first: bool, commands: Mapping[str, str], files: Sequence[str]
) -> Offers | None:
    """Return the offers for the cursor at `column` of `line`; None: nothing is being completed.

    `commands` are their names with what they do, `files` those of the folder.
    """
    before = line[:column]
    if is_first and before.startswith("/"):
        word, is_past, rest = before.partition(" ")
        if not is_past:
            values = tuple(name for name in commands if name.startswith(word) and name != word)
            return Offers("command", 0, values, commands) if values else None
        if word == "/thinking":
            levels = tuple(each for each in get_args(ThinkingLevel) if each.startswith(rest))
            return Offers("argument", len(word) + 1, levels) if rest not in levels else None
        if word in ("/attach", "/export"):
            return _files("argument", len(word) + 1, rest, files)
    at = before.rfind("@")
    if at < 0 or " " in before[at:] or (at > 0 and not before[at - 1].isspace()):
        return None
    return _files("file", at + 1, before[at + 1 :], files)


def _files(kind: str, start: int, typed: str, files: Sequence[str]) -> Offers | None:
    wanted = wanted_of(typed)
    if wanted.is_empty:
        found = list(files[:MOST_OFFERS])
    else:
        matches = rank(((fold(name),) for name in files), wanted)
        found = [files[match.index] for match in matches[:MOST_OFFERS]]
    return Offers(kind, start, tuple(found)) if found and found != [typed] else None


def files_below(folder: Path) -> list[str]:
    """Return the names of files in `folder`, the nearest first, at most `MOST_FILES`.

    Leaves out version control, installed packages, and names with control characters.
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
    return files, folders
