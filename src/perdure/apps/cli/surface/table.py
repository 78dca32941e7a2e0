"""Help and completion from a generated table of all commands, without loading a command.

`scripts/make_command_docs.py` writes the table, and `make check` compares it with the commands.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.apps.cli.exits import DONE, FAILED
from perdure.apps.cli.surface.shape import Command, page_lines
from perdure.apps.terminal.output import out_style, show_lines, width
from perdure.errors import PerdureError

FILE = Path(__file__).parents[3] / "data" / "commands.json"

_COMPLETE = "__complete"
_HELP = frozenset({"--help", "-h"})


def command_table() -> Command:
    """Return the program with all commands, as the table describes it."""
    return msgspec.json.decode(FILE.read_bytes(), type=Command)


def encode_table(program: Command) -> str:
    """Return the text of the table for `program`."""
    return msgspec.json.format(msgspec.json.encode(program), indent=1).decode() + "\n"


def asked_of(words: Sequence[str]) -> Sequence[str]:
    """Return `words` without a leading ``help``: the name of the command to describe."""
    return words[1:] if words[:1] == ["help"] else words


def answer_from_table(words: Sequence[str]) -> int | None:
    """Print the help or completion that `words` request, and return the exit code.

    Returns None if `words` request neither help nor completion.
    """
    if words and words[0] == _COMPLETE:
        return _complete(*words[1:2], words=words[2:])
    asked = asked_of(words)
    own = asked[: asked.index("--") if "--" in asked else None]
    if asked is words and _HELP.isdisjoint(own):
        return None
    found = command_table().at(asked)
    unread = own[len(found.words) :]
    if found.commands and unread and not unread[0].startswith("-"):
        return None  # an unknown command, whose error names the one that is meant
    show_lines(page_lines(found, width(), out_style()))
    return DONE


def _complete(shell: str = "", *, words: Sequence[str]) -> int:
    """Answer the completion script of `shell`, which passes `words`. Errors are not printed."""
    # Imported lazily: few command lines are completions, and only some words need a store.
    completion: Any = importlib.import_module("perdure.apps.cli.surface.completion")
    shells: Any = importlib.import_module("perdure.apps.cli.surface.shells")
    before, typed = shells.split_typed(shell, words)

    def lookup() -> Any:
        return importlib.import_module("perdure.apps.cli.surface.candidates").StoreLookup(before)

    try:
        found = completion.complete_words(command_table(), before, typed, lookup)
    except (PerdureError, OSError):
        return FAILED  # errors of the store are not shown during typing
    show_lines(shells.answer(shell, words, typed, found))
    return DONE
