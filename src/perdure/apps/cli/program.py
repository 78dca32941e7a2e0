"""The commands there are, and the one that is called. Only its own module is imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Protocol, cast

import typer

from perdure.apps.cli.exits import DONE, USAGE, UsageMistake
from perdure.apps.terminal.output import remark, show

COMMANDS: Mapping[str, str] = {
    "demo": "perdure.apps.demo.command",
    "chat": "perdure.apps.chat.command",
    "sessions": "perdure.apps.cli.sessions",
    "import": "perdure.apps.cli.imports",
    "export": "perdure.apps.cli.transfer",
    "inbox": "perdure.apps.cli.inbox",
    "store": "perdure.apps.cli.stores",
    "models": "perdure.apps.cli.models",
    "doctor": "perdure.apps.cli.doctor",
}
"""Command -> module that adds it, in the order of the help."""


class CommandModule(Protocol):
    """What a module of commands holds."""

    def add_to(self, program: typer.Typer) -> None:
        """Make its commands known."""
        ...


def run(words: Sequence[str]) -> int:
    """Run the command that `words` call; the exit code.

    Raises: UsageMistake when they call none; what the command raises.
    """
    command = typer.main.get_command(_program(words[0] if words else None))
    try:
        result: object = command.main(list(words), prog_name="perdure", standalone_mode=False)
    except typer.TyperException as error:
        return _misused(error.format_message())
    except typer.Abort:  # typer's word for a stdin that ended
        raise KeyboardInterrupt from None
    return result if isinstance(result, int) else DONE


def _program(wanted: str | None) -> typer.Typer:
    """The program with the command `wanted`; with all commands where that is none of them."""
    program = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    program.callback()(_perdure)
    if wanted in ("--version", "-V"):
        names: list[str] = []
    else:
        names = [wanted] if wanted is not None and wanted in COMMANDS else list(COMMANDS)
    for module in dict.fromkeys(COMMANDS[name] for name in names):
        cast("CommandModule", importlib.import_module(module)).add_to(program)
    return program


def _show_version(is_wanted: bool) -> None:  # noqa: FBT001 - typer passes it by position
    if is_wanted:
        # By name: it takes longer to load than most commands take to run.
        version: str = importlib.import_module("importlib.metadata").version("perdure")
        show(f"perdure {version}")
        raise typer.Exit(DONE)


def _perdure(
    *,
    _is_version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            help="Show the version and exit.",
        ),
    ] = False,
) -> None:
    """Sessions for AI agents that last: one durable log, from a recorded session to a resumed turn.

    The store is $PERDURE_STORE, or a file of yours; every command takes --store.
    """


def _misused(message: str) -> int:
    if message.startswith("Usage:"):  # a group was called without a command: its help
        remark(message)
        return USAGE
    hint = "" if message.endswith("?") else "; add --help to see what is possible"
    raise UsageMistake(message.rstrip(".") + hint)
