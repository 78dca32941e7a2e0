"""The entry point: from words on a command line to an exit code.

Only the module of the command that is called is imported, so that starting stays fast. Nothing
that goes wrong reaches a user as a traceback: each error is one sentence on stderr and a code from
the table in ``exits`` ($PERDURE_DEBUG=1 shows the traceback as well).
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Annotated, Protocol, cast

import typer

from perdure.apps.cli.exits import DONE, FAILED, INTERRUPTED, USAGE, exit_code_of
from perdure.apps.terminal.output import (
    OutputClosed,
    close_streams,
    prepare_streams,
    remark,
    show,
    show_error,
    show_failure,
)
from perdure.errors import PerdureError

COMMANDS: Mapping[str, str] = {
    "demo": "perdure.apps.demo.command",
    "chat": "perdure.apps.chat.command",
    "sessions": "perdure.apps.cli.sessions",
    "import": "perdure.apps.cli.transfer",
    "export": "perdure.apps.cli.transfer",
    "inbox": "perdure.apps.cli.inbox",
    "store": "perdure.apps.cli.stores",
    "doctor": "perdure.apps.cli.doctor",
}
"""Command -> module that adds it, in the order of the help."""


class CommandModule(Protocol):
    """What a module of commands holds."""

    def add_to(self, program: typer.Typer) -> None:
        """Make its commands known."""
        ...


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    prepare_streams()
    try:
        return _ended(words)
    finally:
        close_streams()


def _ended(words: list[str]) -> int:
    as_json = "--json" in words
    try:
        return _run(words)
    except OutputClosed:
        return DONE  # a reader that has seen enough is no failure
    except typer.TyperException as error:
        return _misused(error, as_json=as_json)
    except PerdureError as error:
        _debug()
        show_error(error, as_json=as_json)
        return exit_code_of(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: nobody is shown a traceback
        _debug()
        told = f"{type(error).__name__}: {error}"
        message = (
            f"this is a fault in perdure, not in what you typed ({told}); please report it with "
            "what the same command shows under PERDURE_DEBUG=1"
        )
        show_failure("internal", message, as_json=as_json)
        return FAILED


def _run(words: list[str]) -> int:
    if words in (["--version"], ["-V"]):
        show(f"perdure {version('perdure')}")
        return DONE
    command = typer.main.get_command(_program(words[0] if words else None))
    result: object = command.main(words, prog_name="perdure", standalone_mode=False)
    return result if isinstance(result, int) else DONE


def _program(wanted: str | None) -> typer.Typer:
    """The program with the command `wanted`; with all commands where that is none of them."""
    program = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
    program.callback()(_perdure)
    names = [wanted] if wanted is not None and wanted in COMMANDS else list(COMMANDS)
    for module in dict.fromkeys(COMMANDS[name] for name in names):
        cast("CommandModule", importlib.import_module(module)).add_to(program)
    return program


def _perdure(
    *,
    is_version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and exit.")
    ] = False,
) -> None:
    """Sessions for AI agents that last: one durable log, from a recorded session to a resumed turn.

    The store is $PERDURE_STORE, or a file of yours; every command takes --store.
    """
    if is_version:
        show(f"perdure {version('perdure')}")
        raise typer.Exit(DONE)


def _misused(error: typer.TyperException, *, as_json: bool) -> int:
    message = error.format_message()
    if message.startswith("Usage:"):  # a group was called without a command: its help
        remark(message)
    else:
        hint = "" if message.endswith("?") else "; add --help to see what is possible"
        show_failure("usage", message.rstrip(".") + hint, as_json=as_json)
    return USAGE


def _debug() -> None:
    if os.environ.get("PERDURE_DEBUG"):
        remark(traceback.format_exc().rstrip())
