"""``perdure completion``: print the completion script of a shell."""

from __future__ import annotations

import os
import typing
from pathlib import Path
from typing import Annotated

import typer

from perdure.apps.cli.exits import UsageMistake
from perdure.apps.cli.surface.shells import Shell, script_of
from perdure.apps.terminal.output import show


def completion(
    shell: Annotated[
        Shell | None,
        typer.Argument(
            metavar="SHELL", help="The shell: bash, zsh or fish; default: the shell in $SHELL."
        ),
    ] = None,
) -> None:
    """Print a script for shell completion of commands, options, sessions and entries.

    Completes a session by the beginning of its id or any part of its title, and an entry by its
    number. Completion reads the store and changes nothing.

    Examples:
        eval "$(perdure completion bash)"  # in ~/.bashrc
        eval "$(perdure completion zsh)"   # in ~/.zshrc, after compinit
        perdure completion fish > ~/.config/fish/completions/perdure.fish
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    shells = typing.get_args(Shell)
    if name not in shells:
        raise UsageMistake(f"name the shell: perdure completion {'|'.join(shells)}")
    show(script_of(name), end="")
