"""Completion of ``/commands`` and of ``@files`` in the folder of the session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from perdure.apps.picker.selection import fold, rank, wanted_of
from perdure.models.protocol import ThinkingLevel

MOST_OFFERS = 50


class Offers(msgspec.Struct, frozen=True):
    """The completions for the text from the character `start` to the cursor.

    If `kind` is "file", accepting an offer attaches the file.
    """

    kind: str
    start: int
    values: tuple[str, ...]
    hints: Mapping[str, str] = {}


def offers_for(
    line: str, column: int, *, is_first: bool, commands: Mapping[str, str], files: Sequence[str]
) -> Offers | None:
    """Return the completions at `column` of `line`; None if nothing can be completed.

    `commands` maps command names to descriptions; `files` lists the files in the folder.
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
