"""``perdure completion SHELL``, and ``perdure __complete``, which its scripts ask."""

from __future__ import annotations

import importlib
import os
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from perdure.apps.cli.exits import DONE, FAILED, UsageMistake
from perdure.apps.cli.surface.completion import complete_words
from perdure.apps.cli.surface.shape import Command
from perdure.apps.cli.surface.shells import SCRIPTS, answer, split_typed
from perdure.apps.terminal.output import show, show_lines
from perdure.errors import PerdureError

Shell = Literal["bash", "zsh", "fish"]


def add_to(program: typer.Typer) -> None:
    """Make ``perdure completion`` known."""
    program.command("completion")(completion)


def completion(
    shell: Annotated[
        Shell | None,
        typer.Argument(
            metavar="SHELL", help="The shell: bash, zsh or fish; default: that of $SHELL."
        ),
    ] = None,
) -> int:
    """Print a script for shell completion of commands, options, sessions and entries.

    Completes a session by the beginning of its id or any part of its title, and an entry by its
    number. Completion reads the store and changes nothing.

    Examples:
        eval "$(perdure completion bash)"  # in ~/.bashrc
        eval "$(perdure completion zsh)"   # in ~/.zshrc, after compinit
        perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SCRIPTS:
        raise UsageMistake(f"name the shell: perdure completion {'|'.join(typing.get_args(Shell))}")
    show(SCRIPTS[name], end="")
    return DONE


def complete(shell: str, words: Sequence[str], program: Command) -> int:
    """Answer the script of `shell`, which passes `words` on; quiet whatever happens."""
    before, typed = split_typed(shell, words)
    # By name: only some words need a store, and none of them the rest of the commands.
    looking = importlib.import_module("perdure.apps.cli.surface.candidates")
    try:
        found = complete_words(program, before, typed, looking.StoreLookup(before))
    except (PerdureError, OSError):
        return FAILED  # a person who types a word is not told about a store
    show_lines(answer(shell, words, typed, found))
    return DONE
